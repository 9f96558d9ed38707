"""What somebody tells a run without driving it: that something happened, or what the user adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agentkit.agents.decisions import refuse_if_cancelled
from agentkit.agents.opening import takes_url
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, NoteRefused
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.slots import agent_lane, check_id
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.values import encode_value
from agentkit.core.runtime import SystemChance, SystemClock
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Build, append_note, load_known
from agentkit.state.journal.waits import MAX_KEPT_EVENTS, print_of

__all__ = ["Noted", "add_message", "send_event"]


class Noted(NamedTuple):
    """What became of something that was told.

    Args:
        state: the run with it.
        repeated: it was known by its id before, so nothing was changed.
    """

    state: RunState
    repeated: bool


@takes_url
async def send_event(
    port: JournalPort,
    run_id: str,
    name: str,
    payload: JSON = None,
    *,
    event_id: str | None = None,
    actor: str = "",
    clock: ClockPort | None = None,
) -> Noted:
    """Tell a run that something has happened outside. Whoever drives it next goes on with it.

    It is given to the oldest wait for that name, or kept until the run waits for it.

    Args:
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        name: of the event.
        payload: what the tool that waits for it gets.
        event_id: names it once for all: a second one of the same id changes nothing. Random where
            it is left out.
        actor: who tells it, for the record.
        clock: for the time shown beside the note.

    Raises:
        RunNotFound: there is no such run.
        NoteRefused: the run has ended or was cancelled, or keeps too many events already; or the id
            stands for another event.
        InvalidId, ResultNotStorable: name, id or payload cannot be kept.
    """
    check_id(name, what="event name")
    identity = check_id(event_id, what="event id") if event_id is not None else _token()
    body = e.EventReceived(name, encode_value(payload), identity, _text("actor", actor))
    repeated = False

    def note(state: RunState) -> list[e.Body]:
        nonlocal repeated
        repeated = _is_known(state, state.mail.ids, identity, print_of(name, body.payload))
        if repeated:
            return []
        refuse_if_cancelled(state)
        if len(state.mail) >= MAX_KEPT_EVENTS:
            message = f"run {run_id!r} keeps {MAX_KEPT_EVENTS} events that nothing waits for"
            raise NoteRefused(message, run_id=run_id)
        return [body]

    state = await _append(port, run_id, note, note_id=f"event-{_token()}", clock=clock)
    return Noted(state, repeated)


@takes_url
async def add_message(
    port: JournalPort,
    run_id: str,
    text: str,
    *,
    message_id: str | None = None,
    actor: str = "",
    clock: ClockPort | None = None,
) -> Noted:
    """Say something more to a run that has not ended. The model reads it with its next request:
    behind the results of calls that are under way or wait, never in front of an answer that did not
    know of it. A run whose answer was on its way does not end with that, but answers once more.

    Args:
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        text: what the user says.
        message_id: names it once for all: a second one of the same id changes nothing. Random where
            it is left out.
        actor: who says it, for the record.
        clock: for the time shown beside the note.

    Raises:
        RunNotFound: there is no such run.
        NoteRefused: the run has ended or was cancelled, or the id stands for another text.
        InvalidSpec: the text is empty, or none.
    """
    if not _text("message", text).strip():
        raise InvalidSpec("the message is empty")
    identity = check_id(message_id, what="message id") if message_id is not None else _token()
    body = e.MessageAdded(text, _text("actor", actor), identity)
    repeated = False

    def note(state: RunState) -> list[e.Body]:
        nonlocal repeated
        repeated = _is_known(state, state.messages, identity, print_of(text))
        if not repeated:
            refuse_if_cancelled(state)
        return [] if repeated else [body]

    state = await _append(port, run_id, note, note_id=f"message-{_token()}", clock=clock)
    return Noted(state, repeated)


def _is_known(state: RunState, known: Mapping[str, bytes], identity: str, given: bytes) -> bool:
    """Whether this was told before, by its id."""
    before = known.get(identity, given)
    if before != given:
        message = f"run {state.run_id!r} knows the id {identity!r} for something else that was told"
        raise NoteRefused(f"{message}; give what is new an id of its own", run_id=state.run_id)
    return identity in known


async def _append(
    port: JournalPort, run_id: str, note: Build, *, note_id: str, clock: ClockPort | None
) -> RunState:
    state = await load_known(port, run_id)
    if not note(state):
        return state
    lane = "" if state.started is None else agent_lane(state.started.agent)
    return await append_note(
        port, run_id, note, note_id=note_id, lane=lane, clock=clock or SystemClock()
    )


def _token() -> str:
    return SystemChance().token()


def _text(what: str, text: str) -> str:
    if not isinstance(text, str) or text != text.encode("utf-8", "ignore").decode():
        raise InvalidSpec(f"the {what} {text!r:.80} is no text")
    return text
