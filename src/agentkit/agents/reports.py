"""What a worker tells when it has no lease any more: outcomes that came too late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from agentkit.agents.decide import open_turn
from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import NoteRefused, RunError, StoreError
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal
from agentkit.state.journal.lanes import OPEN_OUTCOMES

__all__ = ["Reports"]

_log = logging.getLogger(__name__)

_on_their_way: set[asyncio.Task[None]] = set()
"""A loop itself holds its tasks only weakly."""


class Reports:
    """Notes by which a worker without the lease says what its tools have returned. Such a fact
    settles a call that is in doubt, whoever has the run by now and whatever was asked about it.

    Args:
        journal: of the run.
        spec: of its agent.
        token: makes the notes' ids.
    """

    def __init__(self, journal: Journal, spec: AgentSpec, *, token: Callable[[], str]) -> None:
        self._journal = journal
        self._spec = spec
        self._token = token

    def tell_later(self, finished: e.ToolFinished) -> None:
        """Tell of one, in a task of its own; the drive may have ended."""
        task = asyncio.get_running_loop().create_task(self.tell([finished]))
        _on_their_way.add(task)
        task.add_done_callback(_on_their_way.discard)

    async def tell(self, finished: Sequence[e.ToolFinished]) -> None:
        """Tell of those that are still in doubt. A run that has ended takes nothing any more: that
        is logged, and so is a store that fails.
        """
        known = [one for one in finished if one.outcome not in OPEN_OUTCOMES]
        if not known:
            return
        run_id = self._journal.state.run_id

        def build(state: RunState) -> list[e.OutcomeReported]:
            if state.end is not None:
                raise NoteRefused(f"it has ended ({state.status}) meanwhile", run_id=run_id)
            return _notes(state, self._spec, known)

        try:
            await self._journal.note(
                build, note_id=f"outcome-{self._token()}", lane=self._spec.lane
            )
        except (StoreError, RunError) as error:
            told = ", ".join(f"call {one.turn}.{one.index} ended: {one.outcome}" for one in known)
            _log.warning("run %r: a late outcome is not recorded (%s): %s", run_id, told, error)


def _notes(
    state: RunState, spec: AgentSpec, finished: Sequence[e.ToolFinished]
) -> list[e.OutcomeReported]:
    turn = open_turn(state, spec)
    if turn is None:
        return []
    return [
        e.OutcomeReported(one.turn, one.index, one.attempt, one.outcome, one.content)
        for one in finished
        if one.turn == turn.answer.turn and turn.calls[one.index].doubtful(one.attempt)
    ]
