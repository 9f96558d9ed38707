"""A new run from what another one had recorded up to a version: time travel that does nothing.

The stored bytes of the prefix are copied as they are, with their checksums, and a `Forked` entry
follows them: all of it in one append, so the new run is there whole or not at all. The source is
only read, so it may be live, finished, or damaged behind that version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    InvalidFork,
    JournalDamaged,
    JournalTooNew,
    VersionNotFound,
)
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import ChancePort, ClockPort, JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Question
from agentkit.core.contracts.values import to_text
from agentkit.state.journal.codec import decode_rows, encode_entry
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.founding import claim_new, found, give_back
from agentkit.state.journal.journal import PAGE_ROWS, load_known
from agentkit.state.journal.lanes import TurnState
from agentkit.state.journal.owner import owner_id

__all__ = ["Fork", "fork"]


class Fork(msgspec.Struct, frozen=True):
    """A run that was forked from another.

    Args:
        run_id: the new run; `agent.resume(run_id, {}, ctx)` carries it on.
        parent: the run that was forked.
        version: of the parent's slot from which the new run goes on.
        seq: how many entries were copied.
        questions: what the new run waits for before it can go on.
    """

    run_id: str
    parent: str
    version: int
    seq: int
    questions: tuple[Question, ...] = ()


async def fork(
    port: JournalPort,
    run_id: str,
    *,
    version: int | None,
    new_run_id: str | None,
    edits: Mapping[tuple[int, int], JSON],
    message: str,
    actor: str,
    clock: ClockPort,
    chance: ChancePort,
) -> Fork:
    """See `Checkpointer.fork`; `port` looks at the scope of both runs."""
    new = check_id(new_run_id) if new_run_id is not None else chance.token()
    if version is None:
        version = _newest(await load_known(port, run_id))
    rows, state = await _prefix(port, run_id, version, new)
    checked = _checked_edits(state, run_id, edits)
    _check_texts(run_id, message, actor)
    if (message or checked) and state.started is None:
        raise InvalidFork(f"run {run_id!r} holds snapshots alone: there is nothing to edit")
    lease = await claim_new(port, new, owner_id(f"fork-{new}"[:64]), above=state.epoch)
    try:
        body = e.Forked(run_id, version, chance.token()[:16], checked, message, actor)
        entry = e.Entry(state.seq + 1, "", lease.epoch, "", int(clock.now() * 1000), body)
        row = encode_entry(entry, before=state.check, run_id=new)
        state.apply(entry, row.check)
        await found(port, lease, [*rows, row], state.summary(), clock=clock)
    except BaseException:
        await give_back(port, lease, clock=clock)
        raise
    return Fork(new, run_id, version, len(rows), state.questions)


def _newest(state: RunState) -> int:
    """The newest version of the run's agent.

    Raises:
        VersionNotFound: the run carries on a conversation, and has completed no step of its own:
            what stands at the newest version knows nothing of its task.
    """
    saved = state.main.versions
    if state.carried is not None and saved and saved[-1].seq < state.carried_at:
        before = [one.version for one in saved]
        message = (
            f"run {state.run_id!r} has completed no step of its own yet; the conversation before "
            f"it has versions {', '.join(map(str, before))}, which are forked by their number"
        )
        raise VersionNotFound(message, run_id=state.run_id, versions=before)
    return state.main.version


async def _prefix(
    port: JournalPort, run_id: str, version: int, new: str
) -> tuple[list[Row], RunState]:
    """The rows up to the version's boundary, and their fold as the new run's.

    What stands behind the boundary is not looked at.
    """
    state = RunState(new)
    rows: list[Row] = []
    while page := await port.read(run_id, after=state.seq, limit=PAGE_ROWS):
        decoded = decode_rows(page, after=state.seq, before=state.check, run_id=run_id)
        for row, (entry, check) in zip(page, decoded, strict=True):
            state.apply(entry, check)
            rows.append(row)
            saved = state.main.versions[-1:]
            if saved and saved[0].seq == state.seq and saved[0].version == version:
                _check_at_rest(state, run_id, version)
                await _add_forks(port, run_id, state, rows)
                return rows, state
    known = await load_known(port, run_id)
    if known.end is not None and known.started is None:
        message = f"run {run_id!r} cannot be forked: it has ended and its entries are gone"
        raise VersionNotFound(message, run_id=run_id, versions=())
    versions = [saved.version for saved in state.main.versions]
    has = f"it has {', '.join(map(str, versions))}" if versions else "it has completed no step yet"
    message = f"run {run_id!r} has no version {version} to fork from; {has}"
    raise VersionNotFound(message, run_id=run_id, versions=versions)


async def _add_forks(port: JournalPort, run_id: str, state: RunState, rows: list[Row]) -> None:
    """Where the run is itself a fork, made at this boundary: its edits and message belong to the
    version. Nothing else behind it counts, nor has to be readable.
    """
    while behind := await port.read(run_id, after=state.seq, limit=1):
        try:
            [(entry, check)] = decode_rows(
                behind, after=state.seq, before=state.check, run_id=run_id
            )
        except (JournalDamaged, JournalTooNew):
            return
        if not isinstance(entry.body, e.Forked):
            return
        state.apply(entry, check)
        rows += behind


def _check_at_rest(state: RunState, run_id: str, version: int) -> None:
    """Refuse a version in the middle of a step: who knows what became of its calls.

    Only a snapshot that somebody saved into the agent's own slot can be one.
    """
    for turn in _open_turns(state):
        if any(not (call.settled or call.question or call.asleep) for call in turn.calls):
            message = (
                f"run {run_id!r}: version {version} was saved in the middle of a step, while calls "
                "were under way; fork from a version at the end of one"
            )
            raise InvalidFork(message)


def _open_turns(state: RunState) -> Iterator[TurnState]:
    for lane in state.lanes.values():
        if lane.turn is not None and not lane.turn.closed:
            yield lane.turn


def _checked_edits(
    state: RunState, run_id: str, edits: Mapping[tuple[int, int], JSON]
) -> tuple[e.ResultEdit, ...]:
    """Edits in call order. Only results of the last turn: what stands before an assistant message
    is bound to it by the provider, which refuses or misreads a changed past.
    """
    turn = state.main.turn
    number = turn.answer.turn if turn is not None else 0
    found = []
    for (of_turn, index), value in sorted(edits.items()):
        place = f"run {run_id!r}: {of_turn}.{index}"
        calls = turn.calls if turn is not None and of_turn == number else []
        if not 0 <= index < len(calls):
            message = f"{place} is no call of the last turn before this version, which is {number}"
            raise InvalidFork(f"{message}; only its results can be edited, what is older stays")
        if not calls[index].settled:
            message = f"{place} has no result to edit: it waits for a decision"
            raise InvalidFork(f"{message}; fork, then answer its question in the new run")
        found.append(e.ResultEdit(of_turn, index, to_text(value)))
    return tuple(found)


def _check_texts(run_id: str, message: str, actor: str) -> None:
    for what, text in (("message", message), ("actor", actor)):
        if text != to_text(text) or (text and not text.strip()):
            raise InvalidFork(f"run {run_id!r}: the {what} {text[:80]!r} is no text")
