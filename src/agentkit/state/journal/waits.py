"""What a run waits for, when it wants a worker, and where events go: pure rules over its lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import Question, Wait
from agentkit.state.journal.lanes import CallState, LaneState, WaitState

__all__ = [
    "MAX_KEPT_EVENTS",
    "Mailbox",
    "begin_input",
    "begin_wait",
    "call_asked",
    "due_at",
    "is_due",
    "open_questions",
    "open_waits",
    "overdue",
    "print_of",
    "question_of",
    "wait_asked",
]

MAX_KEPT_EVENTS = 1_000
"""Events that a run keeps while nothing in it waits for them."""


def print_of(*texts: str) -> bytes:
    """By what it is told whether the same was said again; small, whatever was said."""
    hashed = blake2b(digest_size=16)
    for text in texts:
        hashed.update(f"{len(text)}:{text}".encode())
    return hashed.digest()


class Mailbox:
    """Events of a run that have not been delivered yet, oldest first, and the ids of all with what
    they stand for.
    """

    def __init__(self) -> None:
        self.kept: dict[str, list[e.EventReceived]] = {}
        self.ids: dict[str, bytes] = {}

    def __len__(self) -> int:
        return sum(map(len, self.kept.values()))

    def receive(self, event: e.EventReceived, lanes: Iterable[LaneState]) -> None:
        """Give it to the wait for its name that began first, or keep it; a second one of its id is
        nothing.
        """
        if event.event_id in self.ids:
            return
        self.ids[event.event_id] = print_of(event.name, event.payload)
        open_ones = [
            wait
            for call in _open_calls(lanes)
            for wait in call.waits.values()
            if not wait.ended and (wait.started.kind, wait.started.event) == ("event", event.name)
        ]
        if open_ones:
            min(open_ones, key=lambda wait: wait.seq).end("event", event.payload)
            return
        self.kept.setdefault(event.name, []).append(event)

    def take(self, name: str) -> e.EventReceived | None:
        """The oldest event of that name that was kept."""
        kept = self.kept.get(name)
        return kept.pop(0) if kept else None

    def forget(self) -> None:
        """Whatever has come was for another run."""
        self.kept.clear()
        self.ids.clear()


def begin_wait(call: CallState, body: e.WaitStarted, mail: Mailbox, *, seq: int) -> bool:
    """The newest attempt waits; whether that is a new wait. One that has what it waits for at once
    does not put its attempt to sleep.
    """
    known = call.waits.get(body.name)
    if known is not None:
        known.attempt = call.attempt
        return False
    wait = call.waits[body.name] = WaitState(body, attempt=call.attempt, seq=seq)
    event = mail.take(body.event) if body.kind == "event" else None
    if event is not None:
        wait.attempt = 0
        wait.end("event", event.payload)
    return True


def begin_input(call: CallState, body: e.QuestionAsked, question: Question, *, seq: int) -> None:
    """The newest attempt asks a person, and waits."""
    started = e.WaitStarted(
        body.turn, body.index, body.name, "input", body.deadline, on_deadline=body.on_deadline
    )
    call.waits.setdefault(
        body.name, WaitState(started, attempt=call.attempt, seq=seq, question=question)
    )


def question_of(run_id: str, entry: e.Entry, body: e.QuestionAsked, call_id: str) -> Question:
    """The question that this entry asks."""
    return Question(
        id=f"q{entry.seq}",
        kind=body.kind,
        tool=body.tool,
        call_id=call_id,
        arguments=body.arguments,
        digest=body.digest,
        answers=body.answers,
        prompt=body.prompt,
        deadline=body.deadline,
        on_deadline=body.on_deadline,
        path=(run_id, entry.lane, f"{body.turn}.{body.index}"),
        name=body.name,
        schema=body.schema,
    )


def open_questions(lanes: Iterable[LaneState]) -> Iterator[Question]:
    """Open questions that nobody has decided, by call."""
    for lane in lanes:
        for call in lane.turn.calls if lane.turn is not None else ():
            if call.question is not None and call.waiting:
                yield call.question
            if call.waits and not call.settled:
                for wait in call.waits.values():
                    if wait.question is not None and not wait.ended:
                        yield wait.question


def open_waits(run_id: str, lanes: Iterable[LaneState]) -> Iterator[Wait]:
    """What calls wait for beside persons, by call."""
    for lane in lanes:
        for call in lane.turn.calls if lane.turn is not None and not lane.turn.closed else ():
            place = f"{lane.turns}.{call.index}"
            for wait in _sleeping_for(call):
                body = wait.started
                if body.kind != "input":
                    yield Wait(
                        body.kind,
                        body.name,
                        call.record.name,
                        body.until,
                        body.event,
                        (run_id, lane.lane, place),
                    )


def call_asked(lanes: Iterable[LaneState], question_id: str) -> CallState | None:
    """The call whose own question has this id, decided or not; `None` once it was applied."""
    for lane in lanes:
        for call in lane.turn.calls if lane.turn is not None else ():
            if call.question is not None and call.question.id == question_id:
                return call
    return None


def wait_asked(lanes: Iterable[LaneState], question_id: str) -> WaitState | None:
    """The open wait whose question has this id."""
    for call in _open_calls(lanes):
        for wait in call.waits.values():
            question = wait.question
            if question is not None and question.id == question_id and not wait.ended:
                return wait
    return None


def overdue(call: CallState, *, turn: int, now_ms: int) -> list[e.WaitEnded]:
    """The waits of a sleeping call that the time has ended."""
    return [
        e.WaitEnded(
            turn,
            call.index,
            wait.started.name,
            "time" if wait.started.kind == "time" else "deadline",
        )
        for wait in _sleeping_for(call)
        if _is_over(wait, now_ms)
    ]


def due_at(lanes: Iterable[LaneState]) -> int | None:
    """The earliest moment (ms since the epoch) at which a call that waits can move by itself: 0
    where one can now, since what it waits for has come; `None` where only a person, or an event,
    can move any.
    """
    return min(_moments(lanes), default=None)


def is_due(lanes: Iterable[LaneState], now_ms: int) -> bool:
    """Whether a call that waits can move by itself at `now_ms`."""
    moment = due_at(lanes)
    return moment is not None and moment <= now_ms


def _moments(lanes: Iterable[LaneState]) -> Iterator[int]:
    for call in _open_calls(lanes):
        if call.woken or (call.question is not None and call.decision is not None):
            yield 0
        elif call.question is not None and call.question.deadline:
            yield call.question.deadline
        for wait in _sleeping_for(call):
            moment = _ends_at(wait)
            if moment is not None:
                yield moment


def _is_over(wait: WaitState, now_ms: int) -> bool:
    moment = _ends_at(wait)
    return moment is not None and moment <= now_ms


def _ends_at(wait: WaitState) -> int | None:
    """When the time ends it, if ever."""
    until = wait.started.until
    return until if until or wait.started.kind == "time" else None


def _sleeping_for(call: CallState) -> list[WaitState]:
    """What is still to come of what the newest attempt of a sleeping call waits for."""
    if not call.waits or not call.asleep:
        return []
    return [wait for wait in call.waits.values() if wait.attempt == call.attempt and not wait.ended]


def _open_calls(lanes: Iterable[LaneState]) -> Iterator[CallState]:
    for lane in lanes:
        if lane.turn is not None and not lane.turn.closed:
            yield from (call for call in lane.turn.calls if not call.settled)
