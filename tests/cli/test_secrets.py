"""F118: a key is used and never kept or shown."""

import importlib.util
import json
from typing import Any

import pytest

from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider
from tests.cli.kit import Shell

KEY = "sk-ant-very-secret-0123456789"

AGENT = """
from agents import *

agent = Agent("looker", "anthropic:claude-x", cognition=ReActCognition([look]))
"""


@pytest.mark.skipif(importlib.util.find_spec("anthropic") is None, reason="needs the SDK")
@pytest.mark.slow
def test_f118_a_key_is_in_no_output_and_in_no_stored_byte(shell: Shell) -> None:
    """F118: a run that answers, one that is refused its key and one whose provider fails: neither
    the store's bytes, nor events, nor any command's output holds the key.
    """
    (shell.folder / "keyed.py").write_text(AGENT)
    script = [Answer(tool_calls=[CallSpec("look", {"item": "a"})]), Answer(text="done")]
    with StrictProvider(script, api_key=KEY) as provider:
        environment: dict[str, Any] = {"ANTHROPIC_BASE_URL": provider.url, "NO_PROXY": "127.0.0.1"}

        def agentkit(*arguments: str, key: str = KEY) -> str:
            done = shell(*arguments, ANTHROPIC_API_KEY=key, **environment)
            codes.append(done.code)
            return done.out + done.err

        codes: list[int] = []
        told = [
            agentkit("run", "keyed:agent", "Look.", "--run-id", "good"),
            agentkit("run", "keyed:agent", "Look.", "--run-id", "bad", key=KEY[::-1]),
        ]
        provider.fail_next(Fault.error(400, message=f"the key {KEY} is not liked"))
        told.append(agentkit("run", "keyed:agent", "Look.", "--run-id", "echo"))
        for run in ("good", "bad", "echo"):
            told += [agentkit("show", run), agentkit("show", run, "--json")]
        told += [agentkit("runs"), agentkit("runs", "--json"), agentkit("doctor")]

    assert [0, 5, 5] == codes[:3], told[:3]
    assert {0} == set(codes[3:])
    assert 3 == len(json.loads(told[-2]))
    for text in told:
        assert KEY not in text
        assert KEY[::-1] not in text
    for path in shell.folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
            assert KEY[::-1].encode() not in path.read_bytes(), path
