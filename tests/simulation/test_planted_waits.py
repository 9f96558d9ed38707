"""Bugs of approvals, waits, notes and stopping are planted in the runtime, and found."""

from collections.abc import Callable, Sequence

import pytest

from agentkit.agents import deciding, decisions, noting
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import Question
from agentkit.state.journal import approval, fold, recovery, waits
from agentkit.state.journal.approval import ApprovalPolicy, Approved
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Build, append_note
from agentkit.state.journal.lanes import CallState, LaneState, WaitState
from agentkit.state.journal.transcript import Transcript
from agentkit.state.journal.waits import Mailbox
from tests.simulation.planted import SOON, found

Monkey = pytest.MonkeyPatch


def test_a_second_decision_that_counts_as_the_first_is_found(monkeypatch: Monkey) -> None:
    """Who contradicts is told that it was recorded as said."""
    monkeypatch.setattr(decisions, "_check_repeated", lambda *_: None)

    assert found("I11", policies=["approve", "wait"])


def test_a_decision_that_is_checked_on_an_older_reading_is_found(monkeypatch: Monkey) -> None:
    """Two people at once are both told that theirs is recorded."""

    async def append(
        port: object, run_id: str, build: Callable[[RunState], Sequence[e.Body]], **options: object
    ) -> RunState:
        known: list[Sequence[e.Body]] = []

        def once(state: RunState) -> Sequence[e.Body]:
            known[:] = known or [build(state)]
            return known[0]

        return await append_note(port, run_id, once, **options)  # type: ignore[arg-type]  # its own

    monkeypatch.setattr(deciding, "append_note", append)

    assert found("I11", policies=["approve", "wait"], since=70)


def test_a_decision_of_a_question_that_nobody_asked_is_found(monkeypatch: Monkey) -> None:
    """An unknown id is not taken for the open question."""

    def guessed(state: RunState, name: str) -> str:
        known = [question.id for question in state.questions]
        return name if name in known or not known else known[0]

    monkeypatch.setattr(decisions, "_question_id", guessed)

    assert found("I11", policies=["approve", "wait"])


def test_an_answer_that_goes_to_another_question_is_found(monkeypatch: Monkey) -> None:
    """Each tool gets its own."""

    def first(lanes: Sequence[LaneState], question_id: str) -> WaitState | None:
        asked = (wait for lane in lanes for call in lane.turn.calls for wait in call.waits.values())  # type: ignore[union-attr]  # a turn waits
        known = [wait for wait in asked if wait.question is not None]
        named = any(wait.question.id == question_id for wait in known)  # type: ignore[union-attr]  # it has
        return next((wait for wait in known if named and not wait.ended), None)

    monkeypatch.setattr(fold, "wait_asked", lambda lanes, name: first(list(lanes), name))

    assert found("I11", policies=["wait"])


def test_silence_that_approves_is_found(monkeypatch: Monkey) -> None:
    """A deadline rejects, unless the tool says otherwise."""
    real = approval.after_question

    def hopeful(
        call: CallState, question: Question, policy: ApprovalPolicy, *, now_ms: int, **other: object
    ) -> object:
        if call.decision is None and 0 < question.deadline <= now_ms:
            return Approved("deadline")
        return real(call, question, policy, now_ms=now_ms, **other)  # type: ignore[arg-type]  # its own

    monkeypatch.setattr(recovery, "after_question", hopeful)

    assert found("I11", policies=["approve"])


def test_a_refusal_that_is_forgotten_is_found(monkeypatch: Monkey) -> None:
    """The model asks again, and this time nobody is asked."""
    monkeypatch.setattr(fold, "_remember_refusal", lambda *_: None)

    assert found("I11", policies=["approve"])


def test_a_decision_that_outlives_its_question_is_found(monkeypatch: Monkey) -> None:
    """An approval of a call is spent with the attempt that it was for: one that has failed without
    telling what became of it is a matter of its own.
    """
    begin = CallState.begin

    def kept(call: CallState, started: e.ToolStarted, *, epoch: int, seq: int) -> None:
        question, decision = call.question, call.decision
        begin(call, started, epoch=epoch, seq=seq)
        if question is not None and question.kind == "approval":
            call.question, call.decision = question, decision

    monkeypatch.setattr(CallState, "begin", kept)

    assert found("I13", policies=["approve"])


def test_a_cancel_that_a_takeover_forgets_is_found(monkeypatch: Monkey) -> None:
    """A cancelled run never comes back."""
    real = fold._APPLY[e.LeaseTaken]

    def taken(state: RunState, entry: e.Entry, body: e.LeaseTaken) -> None:
        real(state, entry, body)
        state.cancel = None

    monkeypatch.setitem(fold._APPLY, e.LeaseTaken, taken)

    assert found("I10", since=130)


def test_a_pause_that_nobody_heeds_is_found(monkeypatch: Monkey) -> None:
    """Nothing begins in a paused run."""
    monkeypatch.setattr(RunState, "stopping", property(lambda state: state.cancel is not None))

    assert found("I10", since=30)


def test_a_timer_that_fires_early_is_found(monkeypatch: Monkey) -> None:
    """By the clock of the worker that says so."""
    monkeypatch.setattr(waits, "_is_over", lambda wait, _: wait.started.kind == "time")

    assert found("I11", policies=["wait"], schedules=SOON)


def test_a_timer_that_fires_twice_is_found(monkeypatch: Monkey) -> None:
    """What is over is not over again."""
    monkeypatch.setattr(
        waits,
        "_sleeping_for",
        lambda call: [w for w in call.waits.values() if w.attempt == call.attempt],
    )

    assert found("I11", policies=["wait"], since=40)


def test_an_event_whose_id_is_not_looked_at_is_found(monkeypatch: Monkey) -> None:
    """It would be delivered as often as it is told."""
    receive = Mailbox.receive

    def forgetful(mail: Mailbox, event: e.EventReceived, lanes: Sequence[LaneState]) -> None:
        receive(mail, event, lanes)
        mail.ids.clear()

    monkeypatch.setattr(Mailbox, "receive", forgetful)

    assert found("I4", policies=["wait"])


def test_an_event_that_is_given_to_two_is_found(monkeypatch: Monkey) -> None:
    """One that was kept is gone once it was taken."""

    def peek(mail: Mailbox, name: str) -> e.EventReceived | None:
        kept = mail.kept.get(name)
        return kept[0] if kept else None

    monkeypatch.setattr(Mailbox, "take", peek)

    assert found("I4", policies=["wait"])


def test_a_message_that_is_lost_while_calls_are_open_is_found(monkeypatch: Monkey) -> None:
    """The model reads it behind their results."""
    add = Transcript.add_user

    def deaf(transcript: Transcript, text: str) -> None:
        if not transcript._open:
            add(transcript, text)

    monkeypatch.setattr(Transcript, "add_user", deaf)

    assert found("I3", policies=["wait", "key"])


def test_an_end_that_does_not_know_of_the_newest_message_is_found(monkeypatch: Monkey) -> None:
    """An answer that was on its way when the user said more does not end the run."""
    from agentkit.agents import drive
    from agentkit.agents.decide import after_answer

    def blind(*given: object, said: object = None, **other: object) -> list[e.Body]:
        return after_answer(*given, **other)  # type: ignore[arg-type]  # its own

    monkeypatch.setattr(drive, "after_answer", blind)

    assert found("I3")


def test_a_message_of_a_known_id_is_found(monkeypatch: Monkey) -> None:
    """It is said once."""
    real = noting._append

    async def always(port: object, run_id: str, note: Build, **options: object) -> RunState:
        def again(state: RunState) -> Sequence[e.Body]:
            state.messages.clear()
            return note(state)

        return await real(port, run_id, again, **options)  # type: ignore[arg-type]  # its own

    monkeypatch.setattr(noting, "_append", always)

    assert found("I3")
