"""Decisions about a run's open questions, recorded without driving it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentkit.agents.decisions import Check, by_question, check_decisions, fits_definition
from agentkit.agents.opening import takes_url
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, StaleDecision
from agentkit.core.contracts.ports import ChancePort, ClockPort, JournalPort
from agentkit.core.contracts.types import JSON, Decision
from agentkit.core.runtime import SystemChance, SystemClock
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import append_note, load_known

__all__ = ["MIN_DIGEST_CHARACTERS", "Recorded", "record_decisions"]

MIN_DIGEST_CHARACTERS = 8
"""Fewer of a digest do not tell that it is the one that was shown."""


class Recorded(NamedTuple):
    """What became of decisions.

    Args:
        state: the run with them.
        repeated: questions that had been decided in the same way before; nothing was changed.
    """

    state: RunState
    repeated: tuple[str, ...]


@takes_url
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
        port: the store, looking at the run's scope; or its URL.
        run_id: the run.
        decisions: by question id, or by the provider's id of the call, which names the first
            question that carries it. A word stands for a `Decision` without a value.
        clock: for deadlines, and the time shown beside the note.
        chance: makes the note's id.
        digest: of what was shown, or at least its first 8 characters; empty for anything.
        check: may refuse by raising `InvalidDecision`. By default edited arguments are compared
            with the tool as it was recorded.

    Raises:
        RunNotFound: there is no such run.
        InvalidDecision: they do not fit the open questions; nothing was recorded. So too
            QuestionNotFound, StaleDecision (too late, or another digest) and AlreadyDecided.
        NoteRefused: the run has ended.
    """
    _check_digest(run_id, digest)
    time = clock or SystemClock()
    state = await load_known(port, run_id)
    asked, seen = by_question(state, decisions), _digests(state)
    repeated: tuple[str, ...] = ()

    def notes(newest: RunState) -> Sequence[e.Body]:
        nonlocal repeated
        now_ms = int(time.now() * 1000)
        _check_shown(newest, dict.fromkeys(asked, digest))
        _check_shown(newest, seen)
        repeated = tuple(name for name in asked if name in newest.decided)
        fits = check or fits_definition(newest)
        return check_decisions(newest, asked, now_ms=now_ms, check=fits)

    if notes(state):
        note_id = f"decision-{(chance or SystemChance()).token()}"
        state = await append_note(
            port, run_id, notes, note_id=note_id, lane=state.main_lane, clock=time
        )
    return Recorded(state, repeated)


def _check_digest(run_id: str, digest: object) -> None:
    if not isinstance(digest, str) or 0 < len(digest) < MIN_DIGEST_CHARACTERS:
        message = f"run {run_id!r}: {digest!r:.80} is no digest; at least the first"
        raise InvalidDecision(f"{message} {MIN_DIGEST_CHARACTERS} characters of one are needed")


def _check_shown(state: RunState, seen: Mapping[str, str]) -> None:
    """Refuse to decide about something else than what was seen: the run may have been deleted and
    begun anew under its id since.
    """
    known = _digests(state)
    for name, digest in seen.items():
        now = known.get(name, digest)
        if not now.startswith(digest):
            message = f"run {state.run_id!r}: question {name} is about other arguments by now"
            raise StaleDecision(f"{message} (digest {now}, not {digest:.64}); look at it again")


def _digests(state: RunState) -> dict[str, str]:
    """What open and decided questions are about."""
    shown = {question.id: question.digest for question in state.questions}
    return shown | {name: decided.digest for name, decided in state.decided.items()}
