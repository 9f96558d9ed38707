"""`agentkit demo`: the promise, played in front of the user and judged."""

import importlib.util
import json

import pytest

from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider
from tests.cli.kit import Shell

needs_sdk = pytest.mark.skipif(
    not any(importlib.util.find_spec(sdk) for sdk in ("anthropic", "openai")),
    reason="the demo's workers talk through a provider's SDK",
)


@pytest.mark.slow
@needs_sdk
def test_demo_kills_workers_everywhere_and_every_invariant_holds(shell: Shell) -> None:
    """Four workers die by SIGKILL, in each kind of tool and in a model call; one question is
    answered; nothing is done or recorded twice.
    """
    done = shell("demo", "--json", seconds=110)

    assert 0 == done.code, done.err
    told = done.json
    killed = {worker["killed_in"] for worker in told["workers"]} - {""}
    assert {"check_stock", "model", "place_order", "send_email"} == killed
    assert len(told["workers"]) == len({worker["pid"] for worker in told["workers"]})
    assert ["send_email"] == [question["tool"] for question in told["questions"]]
    assert [] == told["violations"]
    tools = {row["tool"]: row for row in told["tools"]}
    assert (1, 1) == (tools["search_catalogue"]["runs"], tools["search_catalogue"]["outcomes"])
    assert (2, 1) == (tools["check_stock"]["runs"], tools["check_stock"]["outcomes"])
    assert (2, 1, 1) == tuple(
        tools["place_order"][part] for part in ("runs", "effects", "refused_by_key")
    )
    assert (1, 1) == (tools["send_email"]["runs"], tools["send_email"]["effects"])
    assert (5, 4) == (
        told["workers"][-1]["answers_bought"],
        told["workers"][-1]["answers_recorded"],
    )
    assert 1 == told["usage"]["unknown"]


@needs_sdk
@pytest.mark.slow
def test_demo_fails_where_an_invariant_is_broken(shell: Shell) -> None:
    """A shop that forgets its keys takes the order twice: the demo says so and exits with 1."""
    forgetful = shell.startup(
        """
        import agentkit.testing.effects as effects

        def put(self, tool, arguments, context, *, result):
            return self._log.record(tool, arguments, context, result=result).result

        effects.KeyedSink.put = put
        """
    )

    done = shell("demo", seconds=110, PYTHONPATH=forgetful)

    assert 1 == done.code
    assert "BROKEN I2: place_order" in done.out
    assert "2 effects" in done.out
    assert "\x1b" not in done.out + done.err


def test_demo_without_an_sdk_says_what_to_install(shell: Shell) -> None:
    """No SDK is installed: exit code 2 and the command that installs one."""
    done = shell("demo", PYTHONPATH=shell.without("anthropic", "openai"))

    assert 2 == done.code
    assert 'pip install "arc-agentkit[anthropic]"' in done.err
    assert "" == done.out


@pytest.mark.slow
@needs_sdk
def test_demo_adapts_to_a_model_that_follows_no_script(shell: Shell) -> None:
    """`--model` with a key: what is bought is not known, a worker is killed while an answer takes
    long, and the run is judged all the same.
    """
    sdk = "openai" if importlib.util.find_spec("openai") else "anthropic"
    mail = {"to": "ada@example.org", "text": "Ordered."}
    script = [
        Answer(tool_calls=[CallSpec("check_stock", {"item": "bulbs"})]),
        Answer(tool_calls=[CallSpec("place_order", {"item": "bulbs", "quantity": 20})]),
        Answer(tool_calls=[CallSpec("send_email", mail)]),
        Answer(text="Done."),
    ]
    with StrictProvider(script) as provider:
        provider.always(Fault.stall_stream(2.0, turn=3))
        environment = {
            f"{sdk.upper()}_API_KEY": provider.api_key,
            "OPENAI_BASE_URL": provider.openai_url,
            "ANTHROPIC_BASE_URL": provider.anthropic_url,
            "NO_PROXY": "127.0.0.1",
        }
        process = shell.start("demo", "--json", "--model", f"{sdk}:some-model", **environment)
        out, err = process.communicate(timeout=110)

    assert 0 == process.returncode, err
    told = json.loads(out)
    assert [] == told["violations"]
    assert [] == told["not_killed_in"]
    assert {None} == {worker["answers_bought"] for worker in told["workers"]}
    assert "Done." == told["output"]


def test_demo_with_a_real_model_wants_its_key(shell: Shell) -> None:
    """`--model` without the provider's key: exit code 2, and nothing is started."""
    done = shell("demo", "--model", "openai:gpt-5.1")

    assert 2 == done.code
    assert "OPENAI_API_KEY" in done.err
