"""F118: a key that is part of an agent's model is used, and never kept or shown."""

import shutil
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.errors import RunParked
from agentkit.core.runtime import Invoker, RetryPolicy, RunContext, Services
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider
from agentkit.tools import tool
from tests.cli.kit import Shell
from tests.http.kit import APIS, RUN, TASK, Api, adapter, url_of

both = pytest.mark.parametrize("api", APIS)

KEY = 'sk-ant-secret-0123456789"quite\\<&>odd'
SAID = f"the key {KEY} (and again: {KEY}) is not liked"
CUT = "x" * 470 + KEY
"""Longer than what is shown of a provider's text, and cut in the middle of the key."""


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    """Asks for one call, then answers; knows the key and says it when told to."""
    script = [
        Answer(text="Let me look.", tool_calls=[CallSpec("look", {"item": "a"})]),
        Answer(text="It is there."),
    ]
    with StrictProvider(script, api_key=KEY) as provider:
        yield provider


@tool(side_effecting=False)
async def look(item: str) -> str:
    """Look."""
    return f"{item} is there"


def _holds_the_key(text: str) -> bool:
    """Whether the key, or more of it than anybody may know, stands in the text."""
    return KEY[:16] in text


def _files(folder: Path) -> list[str]:
    """Every byte in the folder."""
    return [
        path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()
    ]


@both
async def test_f118_the_key_of_a_model_is_in_nothing_that_is_kept_told_or_logged(
    api: Api, provider: StrictProvider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider echoes the key in every failure: before an answer, inside of one, at the end of
    a text that is cut, and when it refuses it. Only the request's header has it.
    """
    caplog.set_level("DEBUG")
    provider.fail_next(
        Fault.error(500, message=SAID),
        replace(Fault.stream_error(), message=SAID),
        Fault.error(503, message=CUT),
        replace(Fault.stream_error(turn=1), message=CUT),
        Fault.error(401, message=SAID, turn=1),
        Fault.error(400, message=CUT, turn=1),
    )
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    llm = adapter(api, url_of(api, provider), key=KEY)
    agent = Agent("looker", llm, "Look.", cognition=ReActCognition([look]))
    quick = Invoker(llm, retry=RetryPolicy(base_seconds=0.0))
    services = Services(invoker=quick, checkpointer=Checkpointer(port=store))
    ctx = RunContext(correlation_id=RUN, services=services)

    told = [repr(event) async for event in agent.stream(TASK, ctx)]
    with pytest.raises(RunParked) as parked:
        await agent.resume(RUN, {}, ctx)
    told += traceback.format_exception(parked.value)
    result = await agent.resume(RUN, {}, ctx)
    told += [repr(result), repr(agent), repr(llm), repr(ctx), repr(vars(agent))]
    told += [f"{record.getMessage()} {vars(record)}" for record in caplog.records]
    kept = _files(tmp_path)
    await store.aclose()
    kept += _files(tmp_path)

    assert "It is there." == result.output
    assert 8 == len(provider.calls)
    assert [] == provider.refusals
    assert [] == [text for text in told if _holds_the_key(text)]
    assert not any(_holds_the_key(stored) for stored in kept)
    assert any("[key]" in text for text in told)
    assert any("[key]" in stored for stored in kept)


AGENT = """
from agentkit.models.providers import frontiers as providers
from agents import ReActCognition, Agent, look

model = providers.openai(api_key={key!r}, base_url={url!r}, model="m")
agent = Agent("looker", model, cognition=ReActCognition([look]))
"""


def test_f118_the_command_line_does_not_print_the_key_of_an_agent(
    provider: StrictProvider, tmp_path: Path
) -> None:
    """`run`, `resume`, `runs` and `show` of a run whose provider echoes the key."""
    shell = Shell(tmp_path)
    source = AGENT.format(key=KEY, url=provider.openai_url)
    (tmp_path / "keyed.py").write_text(source)
    provider.fail_next(Fault.error(401, message=SAID), Fault.error(400, message=CUT, turn=1))

    done = [
        shell("run", "keyed:agent", "Look.", "--run-id", "r"),
        shell("runs"),
        shell("resume", "r", "--agent", "keyed:agent", "--json"),
        shell("show", "r"),
    ]

    assert [5, 0, 5, 0] == [one.code for one in done], done
    assert [] == [one for one in done if _holds_the_key(one.out + one.err)]
    assert any("[key]" in one.out for one in done)
    (tmp_path / "keyed.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    kept = _files(tmp_path)
    assert any("[key]" in stored for stored in kept)
    assert not any(_holds_the_key(stored) for stored in kept)
