"""Runs at which several workers have died: each is driven by itself, so that the one that kills
them takes no other run with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from agentkit.core.contracts.heads import Claimable
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.dispatch.picking import Key, key_of

__all__ = ["SUSPECT_RECOVERIES", "Suspects"]

SUSPECT_RECOVERIES = 2
"""Takeovers without progress after which a run whose worker died again is a suspect."""


class Suspects:
    """Keeps suspects apart in one worker.

    Args:
        store: where the runs are.
    """

    def __init__(self, store: JournalPort) -> None:
        self._store = store
        self._alone: Key | None = None

    async def apart(
        self,
        choose: Callable[[Collection[Key]], Sequence[Claimable]],
        *,
        driven: Collection[Key],
    ) -> Sequence[Claimable]:
        """The runs that are to be begun beside the ones that are driven.

        Suspects come last: one is begun when no other run is driven or to be had. While it is
        driven and has made no progress yet, nothing else is begun.

        Args:
            choose: the runs to take, without those that it is given.
            driven: the runs that are worked on here.
        """
        alone = self._alone
        if alone is not None and alone in driven and await self._takeovers(*alone):
            return []
        self._alone = None
        suspects: dict[Key, Claimable] = {}
        chosen = choose(())
        while found := [one for one in chosen if await self._is_suspect(one)]:
            suspects |= {key_of(one): one for one in found}
            chosen = choose(suspects)
        if chosen or driven or not suspects:
            return chosen
        self._alone, one = next(iter(suspects.items()))
        return [one]

    async def _is_suspect(self, one: Claimable) -> bool:
        return bool(one.owner) and await self._takeovers(one.scope, one.run) >= SUSPECT_RECOVERIES

    async def _takeovers(self, scope: str, run: str) -> int:
        """How often the run was taken over since it last got any further."""
        head = await self._store.scoped(Scope.of_key(scope)).head(run)
        return 0 if head is None else head.recoveries
