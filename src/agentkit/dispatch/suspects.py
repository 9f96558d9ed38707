"""Runs at which several workers have died: each is driven by itself, so that the one that kills
them takes no other run with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
        self, chosen: Sequence[Claimable], *, driven: Collection[Key]
    ) -> Sequence[Claimable]:
        """Those of the chosen runs that are to be begun beside the ones that are driven.

        While a suspect is driven that has made no progress yet, there are none. A suspect is begun
        when no other run is driven, and until then none of the others is.
        """
        alone = self._alone
        if alone is not None and alone in driven and await self._takeovers(*alone):
            return []
        self._alone = None
        for one in chosen:
            if one.owner and await self._takeovers(one.scope, one.run) >= SUSPECT_RECOVERIES:
                if driven:
                    return []
                self._alone = key_of(one)
                return [one]
        return chosen

    async def _takeovers(self, scope: str, run: str) -> int:
        """How often the run was taken over since it last got any further."""
        head = await self._store.scoped(Scope.of_key(scope)).head(run)
        return 0 if head is None else head.recoveries
