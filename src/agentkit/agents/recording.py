"""Values that a call computes once: `ToolContext.record`, made durable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.values import decode_value, encode_value
from agentkit.state.journal.journal import Journal

__all__ = ["Recording"]


class Recording:
    """Records for the calls of a lane's newest turn.

    Args:
        journal: of the run.
        lane: whose calls.
        check: raises where the drive may not act any more.
    """

    def __init__(self, journal: Journal, *, lane: str, check: Callable[[], None]) -> None:
        self._journal = journal
        self._lane = lane
        self._check = check

    async def record(self, index: int, name: str, produce: Callable[[], Awaitable[object]]) -> JSON:
        """The value of this name: computed once per call, durable before it is used."""
        state = self._journal.state
        turn = state.lane(self._lane).turn
        if turn is None:
            message = f"run {state.run_id!r}: {name!r} was recorded outside a tool call"
            raise AssertionError(message)
        known = turn.calls[index].values.get(name)
        if known is None:
            self._check()
            known = encode_value(await produce())
            recorded = e.ValueRecorded(turn.answer.turn, index, name, known)
            await self._journal.commit(lambda _: [recorded], lane=self._lane)
        return decode_value(known)
