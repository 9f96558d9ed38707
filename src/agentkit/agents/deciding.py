"""Decisions about a run's open questions, recorded without driving it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from agentkit.agents.decisions import Check, by_question, check_decisions, fits_definition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StaleDecision
from agentkit.core.contracts.ports import ChancePort, ClockPort, JournalPort
from agentkit.core.contracts.slots import agent_lane
from agentkit.core.contracts.types import JSON, Decision
from agentkit.core.runtime import SystemChance, SystemClock
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import append_note, load_known

__all__ = ["Recorded", "record_decisions"]


class Recorded(NamedTuple):
    """What became of decisions.

    Args:
        state: the run with them.
        repeated: questions that had been decided in the same way before; nothing was changed.
    """

    state: RunState
    repeated: tuple[str, ...]


async def record_decisions(
    port: JournalPort,
    run_id: str,
    decisions: Mapping[str, Decision | JSON],
    *,
    clock: ClockPort | None = None,
    chance: ChancePort | None = None,
    digest: str = "",
    check: Check | None = None,
) -> Recorded:
    """Make decisions durable, all of them or none. Whoever drives the run next applies them.

    Args:
        port: the store, looking at the run's scope.
        run_id: the run.
        decisions: by question id, or by the provider's id of the call while exactly one open
            question carries that; see `Decision`. A word stands for a decision without a value.
        clock: for deadlines, and the time shown beside the note.
        chance: makes the note's id.
        digest: of the one question that is decided, or its beginning, as it was shown: it is not
            decided where it has another one. Empty for any.
        check: may refuse a decision by raising `InvalidDecision`. By default edited arguments are
            compared with the tool as it was recorded.

    Raises:
        RunNotFound: there is no such run.
        InvalidDecision: they do not fit the open questions; nothing was recorded.
        StaleDecision: the deadline has passed, or the digest is another one.
        AlreadyDecided: somebody was faster, with another decision.
        NoteRefused: the run has ended.
    """
    time = clock or SystemClock()
    state = await load_known(port, run_id)
    repeated: tuple[str, ...] = ()

    def notes(newest: RunState) -> list[e.Body]:
        nonlocal repeated
        asked = by_question(newest, decisions)
        now_ms = int(time.now() * 1000)
        _check_shown(newest, asked, digest)
        made = check_decisions(newest, asked, now_ms=now_ms, check=check or fits_definition(newest))
        repeated = tuple(name for name in asked if name in newest.decided)
        return [*made]

    if not notes(state):
        return Recorded(state, repeated)
    state = await append_note(
        port,
        run_id,
        notes,
        note_id=f"decision-{(chance or SystemChance()).token()}",
        lane="" if state.started is None else agent_lane(state.started.agent),
        clock=time,
    )
    return Recorded(state, repeated)


def _check_shown(state: RunState, asked: Collection[str], digest: str) -> None:
    """Refuse to decide about something else than what was shown: the run may have been deleted and
    begun anew under its id since.
    """
    shown = {question.id: question.digest for question in state.questions}
    shown |= {name: decided.digest for name, decided in state.decided.items()}
    for name in asked:
        now = shown.get(name, digest)
        if not now.startswith(digest):
            message = f"run {state.run_id!r}: question {name} is about other arguments by now"
            raise StaleDecision(f"{message} (digest {now}, not {digest:.64}); look at it again")
