"""Bugs that are planted in the store or in the runtime are found, each by what it breaks."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from agentkit.agents import calls, claim
from agentkit.agents.recording import Recording
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import JSON
from agentkit.state.checkpoints.adapters import StoreWrapper
from agentkit.state.journal import recovery
from agentkit.state.journal.journal import Journal
from agentkit.state.journal.lanes import CallState
from agentkit.state.journal.lease import Tenure
from agentkit.tools import Tool
from agentkit.tools.outcome import Ended
from tests.simulation.planted import (
    SOON,
    Forgetful,
    Generous,
    Hasty,
    Indulgent,
    Leaking,
    Unfenced,
    found,
    planted,
)


@pytest.mark.parametrize(
    ("bug", "invariant", "since"),
    [
        pytest.param(Forgetful, "I4", 50, id="retried rows not compared"),
        pytest.param(Indulgent, "I6", 245, id="renewed by a stale epoch"),
        pytest.param(Hasty, "I6", 70, id="lapsed before its time"),
        pytest.param(Generous, "I6", 1, id="granted while it is held"),
        pytest.param(Leaking, "I1", 1, id="acknowledged and lost"),
    ],
)
def test_a_bug_of_the_store_is_found(bug: type[StoreWrapper], invariant: str, since: int) -> None:
    """A store that breaks one law breaks an invariant."""
    assert found(invariant, store=partial(planted, bug), since=since)


def test_a_fence_that_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store refuses a worker that was replaced, and the worker stops once it has read of its
    replacement. Each guards the journal alone, so the bug takes both away.
    """
    monkeypatch.setattr(Journal, "_stop_if_replaced", lambda _: None)

    assert found("I6", store=partial(planted, Unfenced))


def test_a_worker_that_acts_without_asking_its_lease_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the check right before an act keeps a paused worker from beginning another one."""
    monkeypatch.setattr(Tenure, "check", lambda _: None)

    assert found("I6")


def test_a_key_that_is_the_same_for_all_calls_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls with one key are one call to the sink, and two effects of one key elsewhere."""
    monkeypatch.setattr(recovery, "idempotency_key", lambda state, *_: f"key of {state.run_id}")

    assert found("I2")


def test_running_a_plain_call_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in doubt without a key is a human's to decide."""

    def again(
        planner: recovery._Planner, call: object, policy: object, _outcome: object
    ) -> e.ToolStarted:
        start: Callable[..., e.ToolStarted] = planner._start
        return start(call, policy, attempt=call.attempt + 1)  # type: ignore[attr-defined]

    monkeypatch.setattr(recovery._Planner, "_recover", again)

    assert found("I13")


def test_a_proof_of_death_that_proves_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes a lease from the living acts beside them."""
    monkeypatch.setattr(claim, "is_dead", lambda *_, **__: True)

    assert found("I6")


def test_unknown_taken_for_impossible_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that its tool cannot tell of is not made again without a person."""
    looked = calls._looked

    def hopeful(tool: Tool, index: int, ended: Ended | BaseException) -> calls.Looked:
        found = looked(tool, index, ended)
        unknown = found.verdict is not None and found.verdict.kind == "unknown"
        return calls.Looked(index, recovery.Verdict("cannot_happen")) if unknown else found

    monkeypatch.setattr(calls, "_looked", hopeful)

    assert found("I2", policies=["reconcile"], schedules=SOON)


def test_a_late_outcome_that_settles_another_attempt_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is heard of an attempt says nothing of the one that followed it."""

    def doubtful(call: CallState, attempt: int) -> bool:
        del attempt
        return call.started is not None and (
            call.outcome is None or call.outcome.outcome == "unknown"
        )

    monkeypatch.setattr(CallState, "doubtful", doubtful)

    assert found("I13", policies=["late"], since=100)


def test_a_key_that_is_claimed_after_the_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`once` says that it is at it before it is."""
    real = Recording.once

    async def once(
        recording: Recording,
        key: str,
        ttl_seconds: float,
        produce: Callable[[], Awaitable[object]],
    ) -> JSON:
        value = await produce()

        async def produced() -> object:
            return value

        return await real(recording, key, ttl_seconds, produced)

    monkeypatch.setattr(Recording, "once", once)

    assert found("I2", policies=["once"], schedules=SOON)


def test_making_a_call_again_instead_of_telling_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that has the model told is not run again."""
    recover = recovery._Planner._recover

    def again(
        planner: recovery._Planner,
        call: CallState,
        policy: recovery.CallPolicy,
        outcome: e.ToolFinished | None,
    ) -> object:
        if policy.on_in_doubt == "tell_model":
            return planner._start(call, policy, attempt=call.attempt + 1)
        return recover(planner, call, policy, outcome)

    monkeypatch.setattr(recovery._Planner, "_recover", again)

    assert found("I2", policies=["tell"], schedules=SOON)
