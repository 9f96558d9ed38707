"""`agentkit demo`: the promise, played in front of the user and judged."""

import importlib.util

import pytest

from tests.cli.kit import Shell

needs_sdk = pytest.mark.skipif(
    not any(importlib.util.find_spec(sdk) for sdk in ("anthropic", "openai")),
    reason="the demo's workers talk through a provider's SDK",
)


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


def test_demo_with_a_real_model_wants_its_key(shell: Shell) -> None:
    """`--model` without the provider's key: exit code 2, and nothing is started."""
    done = shell("demo", "--model", "openai:gpt-5.1")

    assert 2 == done.code
    assert "OPENAI_API_KEY" in done.err
