"""Stopping a run from outside, from any process: cancelled for good, or paused until unpaused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agentkit.agents.decisions import check_decision_texts, refuse_if_cancelled
from agentkit.agents.leftovers import kill_leftovers
from agentkit.agents.opening import takes_url
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, LeaseLost, NoteRefused, RunInUse
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import Decision
from agentkit.core.runtime import SystemChance, SystemClock
from agentkit.state.journal.closing import cancelled_by
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Build, Journal, append_note, load_known
from agentkit.state.journal.lease import LEASE_SECONDS
from agentkit.state.journal.owner import is_dead, owner_id

__all__ = ["cancel", "pause", "unpause"]

_POLL_SECONDS = 0.25


@takes_url
async def cancel(
    port: JournalPort,
    run_id: str,
    *,
    actor: str = "",
    reason: str = "",
    wait_seconds: float = 0.0,
    clock: ClockPort | None = None,
) -> RunState:
    """End a run for good, whoever works on it, wherever, or nobody.

    That it is to end is durable when this returns: no act begins after it, decisions are refused,
    and the run never comes back. A living worker hears it within a heartbeat, cuts off what is
    under way and records the end; where nobody alive holds the run the end is recorded here. Calls
    that may have taken effect are recorded as such. A second cancel changes nothing.

    Args:
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        actor: who says so, for the record.
        reason: why, for the record and for whoever comes too late.
        wait_seconds: how long to wait for a living worker to record the end.
        clock: for the time shown beside the note, and the waiting.

    Returns the run; its `end` is `None` where a living worker has not recorded it yet.

    Raises:
        RunNotFound: there is no such run.
        NoteRefused: it has ended, and not by a cancel.
        InvalidDecision: actor or reason is no text.
    """
    time = clock or SystemClock()

    def note(state: RunState) -> list[e.Body]:
        if state.cancel is not None or isinstance(state.end, e.Cancelled):
            return []
        _refuse_if_ended(state, "cancelled")
        check_decision_texts(state, "cancel", Decision("cancel", actor=actor, reason=reason))
        return [e.CancelAsked(actor, reason)]

    state = await _note(port, run_id, note, "cancelled", clock=time)
    until = time.elapsed() + wait_seconds
    while state.end is None:
        state = await _carry_out(port, state, clock=time)
        left = until - time.elapsed()
        if state.end is not None or left <= 0:
            break
        await time.sleep(min(left, _POLL_SECONDS))
        state = await load_known(port, run_id)
    return state


@takes_url
async def pause(
    port: JournalPort,
    run_id: str,
    *,
    actor: str = "",
    reason: str = "",
    clock: ClockPort | None = None,
) -> RunState:
    """Stop a run until `unpause` lets it go on. Where it is paused already this changes nothing.

    Acts under way end and are recorded; none begins. A living worker hears it within a heartbeat
    and gives the run back. Decisions are still taken; neither they nor a resume wake it. A run that
    is parked already stays so when the pause is lifted.

    Args:
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        actor: who says so, for the record.
        reason: why, for the record.
        clock: for the time shown beside the note.

    Raises:
        RunNotFound: there is no such run.
        NoteRefused: it has ended, or was cancelled.
        InvalidDecision: actor or reason is no text.
    """

    def note(state: RunState) -> list[e.Body]:
        refuse_if_cancelled(state)
        _refuse_if_ended(state, "paused")
        if state.paused:
            return []
        check_decision_texts(state, "pause", Decision("pause", actor=actor, reason=reason))
        return [e.PauseAsked(actor, reason)]

    return await _note(port, run_id, note, "paused", clock=clock or SystemClock())


@takes_url
async def unpause(
    port: JournalPort,
    run_id: str,
    *,
    actor: str = "",
    reason: str = "",
    clock: ClockPort | None = None,
) -> RunState:
    """Lift a pause, and nothing else: a run that is parked for another reason stays parked, which
    `unpark` ends.

    Args: as for `pause`.

    Raises:
        RunNotFound: there is no such run.
        InvalidDecision: it is not paused, or actor or reason is no text.
        NoteRefused: it has ended, or was cancelled.
    """

    def note(state: RunState) -> list[e.Body]:
        refuse_if_cancelled(state)
        if not state.paused:
            raise InvalidDecision(f"run {run_id!r} is not paused: it is {state.status}")
        check_decision_texts(state, "unpause", Decision("unpause", actor=actor, reason=reason))
        return [e.Unparked(actor, reason, pause_only=True)]

    return await _note(port, run_id, note, "unpaused", clock=clock or SystemClock())


async def _note(
    port: JournalPort, run_id: str, build: Build, what: str, *, clock: ClockPort
) -> RunState:
    state = await load_known(port, run_id)
    build(state)  # refuses what the store would refuse with fewer words
    return await append_note(
        port,
        run_id,
        build,
        note_id=f"{what}-{SystemChance().token()}",
        lane=state.main_lane,
        clock=clock,
    )


def _refuse_if_ended(state: RunState, what: str) -> None:
    if state.end is not None:
        message = f"run {state.run_id!r} has ended ({state.status}); it cannot be {what} any more"
        raise NoteRefused(message, run_id=state.run_id)


async def _carry_out(port: JournalPort, state: RunState, *, clock: ClockPort) -> RunState:
    """Record the end, unless somebody who may be alive holds the run: he will."""
    run_id = state.run_id
    head = await port.head(run_id)
    if head is None:
        return state
    dead = bool(head.owner) and is_dead(head.owner, known_drives=known)
    if head.held and not dead:
        return state
    owner = owner_id(f"cancel-{SystemChance().token()}"[:64])
    try:
        lease = await port.acquire(
            run_id, owner, LEASE_SECONDS, supersede=head.epoch if dead else None
        )
        journal = Journal(port, await load_known(port, run_id), clock=clock, lease=lease)
        kill_leftovers(journal.state)
        await journal.commit(
            lambda now: _end(now, lease), lane=state.main_lane, release=lambda _: True
        )
    except (RunInUse, LeaseLost):
        return await load_known(port, run_id)  # somebody was faster, and reads the note first
    return journal.state


def _end(state: RunState, lease: Lease) -> Sequence[e.Body]:
    why: Literal["takeover", "resume"] = "takeover" if lease.took_over else "resume"
    bodies = cancelled_by(state)
    return [e.LeaseTaken(lease.owner, why, lease.head.recoveries), *bodies] if bodies else ()
