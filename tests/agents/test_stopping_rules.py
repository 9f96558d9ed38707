"""The checker of invariants sees what must never become of a run that somebody has stopped, of a
deadline, and of what a user has added.
"""

import msgspec
import pytest

from agentkit.agents import add_message, cancel, pause, unpark
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import JSONObject, Usage
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing._shapes import shape
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, entries_of, then
from tests.agents.test_waiting_rules import pay, violated
from tests.agents.test_waits import Hall

BODIES: list[e.Body] = [
    e.ToolStarted(1, 0, "choose", digest="d"),
    e.QuestionAsked(1, 0, kind="approval", tool="pay", arguments="{}", digest="d",
                    answers=("approve",), prompt="?"),
    e.WaitStarted(1, 0, "w", kind="time", until=1),
    e.StepCompleted(9, 9),
    e.Decided("q7", "approve", "d"),
    e.Unparked("ann"),
    e.PauseAsked("ann"),
    e.CancelAsked("ann"),
    e.MessageAdded("hello", message_id="m1"),
    e.EventReceived("bell", "1", "e1"),
    e.Parked("auth", "no key"),
    e.Finished("done"),
    e.Failed("no"),
]  # fmt: skip


@tool(side_effecting=False)
async def choose(ctx: ToolContext) -> str:
    """Ask."""
    return str(await ctx.ask("Well?"))


async def _stopped(store: InMemoryCheckpointStore, *, paused: bool) -> list[e.Entry]:
    """A run that waits, and was paused or cancelled then."""
    await agent_of(choose).run(TASK, context(then(calls(call("choose"))), store))
    if paused:
        await pause(store, RUN)
        await unpark(store, RUN)
    else:
        await cancel(store, RUN)
    return await entries_of(store)


def _behind(entries: list[e.Entry], kind: type, *bodies: e.Body) -> list[e.Entry]:
    """With these behind the first entry of a kind."""
    at = next(place for place, one in enumerate(entries) if isinstance(one.body, kind))
    put = [msgspec.structs.replace(entries[at], id="", body=body) for body in bodies]
    return [*entries[: at + 1], *put, *entries[at + 1 :]]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: type(body).__name__)
async def test_i10_whatever_follows_a_cancel_is_seen(body: e.Body) -> None:
    """But for the outcomes of its calls, and its end."""
    entries = await _stopped(InMemoryCheckpointStore(), paused=False)

    assert set() == violated(entries)
    assert "I10" in violated(_behind(entries, e.CancelAsked, body))


@pytest.mark.parametrize("body", [BODIES[0], BODIES[1], BODIES[3]], ids=["call", "asks", "step"])
async def test_i10_whatever_begins_in_a_paused_run_is_seen(body: e.Body) -> None:
    """A tool that is under way may wait by then, and people may decide."""
    entries = await _stopped(InMemoryCheckpointStore(), paused=True)
    waits = _behind(entries, e.PauseAsked, e.WaitStarted(1, 0, "w", kind="time", until=1))

    assert set() == violated(entries)
    assert "I10" not in violated(waits)
    assert "I10" in violated(_behind(entries, e.PauseAsked, body))


@pytest.mark.parametrize("kind", [e.CancelAsked, e.PauseAsked])
async def test_i10_a_model_that_is_asked_in_a_stopped_run_is_seen(kind: type) -> None:
    """One answer may have been on its way; there is no second one."""
    entries = await _stopped(InMemoryCheckpointStore(), paused=kind is e.PauseAsked)
    answers = [e.ModelAnswered(turn, "x", usage=Usage()) for turn in (2, 3)]

    assert "I10" not in violated(_behind(entries, kind, answers[0]))
    assert "I10" in violated(_behind(entries, kind, *answers))


async def test_i10_an_end_by_a_cancel_that_nobody_asked_for_is_seen() -> None:
    """Somebody stands behind each."""
    entries = await _stopped(InMemoryCheckpointStore(), paused=False)

    without = [one for one in entries if not isinstance(one.body, e.CancelAsked)]

    assert "I10" in violated(without)


@pytest.mark.parametrize("outcome", ["ok", "error", "skipped", "cancelled"])
async def test_i13_a_call_that_a_cancel_settles_twice_is_seen(outcome: e.Outcome) -> None:
    """One last outcome for each call, and no other."""
    entries = await _stopped(InMemoryCheckpointStore(), paused=False)

    again = _behind(entries, e.ToolFinished, e.ToolFinished(1, 0, outcome, "else"))
    none = [one for one in entries if not isinstance(one.body, e.ToolFinished)]

    assert "I13" in violated(again)
    assert "I13" in violated(none)


@pytest.mark.parametrize("tampered", ["before its time", "made at its deadline"])
async def test_i11_a_deadline_that_is_not_kept_is_seen(tampered: str) -> None:
    """Nobody decides, so the call is refused: not before the deadline, and it is not made."""
    hall = Hall(
        tool(side_effecting=True, requires_approval=True, approval_seconds=60)(pay.function)
    )
    hall.llm = then(calls(call("pay", cents=5)))
    await hall.run()
    hall.clock.advance(60.0)
    assert "done" == (await hall.resume()).output
    entries = await entries_of(hall.store)
    at = next(at for at, one in enumerate(entries) if isinstance(one.body, e.ToolFinished))
    asked = next(one.body for one in entries if isinstance(one.body, e.QuestionAsked))
    made = e.ToolStarted(1, 0, "pay", asked.digest, "key")
    before = list(entries)
    if tampered == "before its time":
        entries[at] = msgspec.structs.replace(entries[at], at=asked.deadline - 1)
    else:
        entries.insert(at, msgspec.structs.replace(entries[at], body=made))

    assert set() == violated(before)
    assert "I11" in violated(entries)


async def test_i3_a_message_that_the_model_has_not_read_is_seen() -> None:
    """It was acknowledged, and the run has ended with an answer that knew nothing of it."""
    store, llm = InMemoryCheckpointStore(), then(calls(call("choose")))
    first = await agent_of(choose).run(TASK, context(llm, store))
    assert first.suspended is not None
    await add_message(store, RUN, "The blue one.")
    given = {first.suspended.questions[0].id: "red"}
    assert "done" == (await agent_of(choose).resume(RUN, given, context(llm, store))).output
    asked = [[shape(message) for message in request.messages] for request in llm.requests]
    deaf = [[one for one in messages if one != asked[1][-1]] for messages in asked]

    found = []
    for requests in (asked, deaf):
        answers: list[JSONObject] = [
            {"kind": kind, "run": RUN, "turn": turn, "messages": list(messages)}
            for turn, messages in enumerate(requests, 1)
            for kind in ("asked", "bought")
        ]
        rows = await read_rows(store, RUN)
        found.append(check(Evidence(run=RUN, rows=rows, answers=tuple(answers))))

    assert [] == found[0]
    assert {"I3"} == {one.invariant for one in found[1]}
