"""A new run that carries on the conversation of one that has ended.

The stored bytes of the conversation are copied as they are, as a fork does, and a `Forked` entry
with the new task follows them: all in one append, so the new run is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunNotFound, RunUnfinished, VersionNotFound
from agentkit.core.contracts.heads import TERMINAL_STATUSES, Head, Lease, Row
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.journal.codec import damaged, decode_rows, encode_entry
from agentkit.state.journal.detail import END_STATUS, Detail
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.founding import found
from agentkit.state.journal.journal import PAGE_ROWS
from agentkit.state.journal.owner import is_dead

__all__ = ["Conversation", "begin_after", "ended_conversation"]


class Conversation(NamedTuple):
    """What a run that has ended had recorded before its end.

    Args:
        run_id: the run.
        rows: its entries, as they are stored.
        state: their fold, as the new run's.
    """

    run_id: str
    rows: list[Row]
    state: RunState


async def ended_conversation(port: JournalPort, run_id: str, new_run_id: str) -> Conversation:
    """Read the conversation of a run that has ended, to carry it on as `new_run_id`.

    Raises:
        RunNotFound: there is no such run.
        RunUnfinished: it has not ended.
        VersionNotFound: retention has removed its entries.
        JournalDamaged, JournalTooNew: it cannot be read.
    """
    head = await port.head(run_id)
    if head is None or head.summary is None or head.seq == 0:
        message = f"run {run_id!r}, whose conversation is to be carried on, does not exist in this"
        raise RunNotFound(f"{message} store and scope; check id, URL and scope", run_id=run_id)
    if head.summary.status not in TERMINAL_STATUSES:
        raise _unfinished(head, head.summary.status)
    if head.tombstone:
        message = f"run {run_id!r} cannot be carried on: it has ended and its entries are gone"
        raise VersionNotFound(message, run_id=run_id, versions=())
    state = RunState(new_run_id)
    rows: list[Row] = []
    while page := await port.read(run_id, after=state.seq, limit=PAGE_ROWS):
        decoded = decode_rows(page, after=state.seq, before=state.check, run_id=run_id)
        for row, (entry, check) in zip(page, decoded, strict=True):
            if type(entry.body) in END_STATUS:
                return Conversation(run_id, rows, state)
            state.apply(entry, check)
            rows.append(row)
    raise damaged(run_id, state.seq + 1, f"entry {state.seq + 1} is missing")


async def begin_after(
    port: JournalPort,
    lease: Lease,
    past: Conversation,
    bodies: Sequence[e.Body],
    *,
    clock: ClockPort,
) -> RunState:
    """Begin the run of this lease with a copy of `past` and then `bodies`, in one append.

    Raises:
        RunIdReused: there is such a run already.
        StoreUnreachable: the store failed each time; the run is there whole or not at all.
    """
    state, rows = past.state, list(past.rows)
    at = int(clock.now() * 1000)
    for body in bodies:
        entry = e.Entry(state.seq + 1, "", lease.epoch, state.main_lane, at, body)
        row = encode_entry(entry, before=state.check, run_id=lease.run)
        state.apply(entry, row.check)
        rows.append(row)
    await found(port, lease, rows, state.summary(), clock=clock, release=False)
    return state


def _unfinished(head: Head, status: str) -> RunUnfinished:
    detail = Detail() if head.summary is None else _detail(head.summary.detail)
    run = head.run
    ids = ", ".join(f"{one.id} ({one.tool})" for one in detail.questions)
    waits = ", ".join(one.event or one.name for one in detail.waits)
    now = {
        "suspended": f"it waits for {ids or waits}; answer first, with agent.resume or "
        "`agentkit resume`",
        "parked": f"it is parked ({detail.parked}); resume it first, or cancel it",
        "saved": "it holds snapshots alone, and no conversation",
        "submitted": "no worker has begun it yet",
    }.get(status)
    if now is None:
        works = head.held and not is_dead(head.owner, known_drives=known)
        left = "its worker is gone" if head.owner else "nobody works on it"
        now = "a worker is at it" if works else f"{left}; resume it first"
    message = f"run {run!r} has not ended, so its conversation cannot be carried on: {now}. "
    message += "To say more to it, use add_message or `agentkit send --message`."
    return RunUnfinished(message, run_id=run, status=status, questions=detail.questions)


def _detail(summary: bytes) -> Detail:
    return msgspec.json.decode(summary, type=Detail)
