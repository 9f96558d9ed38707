"""What tools have kept: `ToolContext.record` in the run's journal, `once` in the store."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    OutcomeUnknown,
    ResultNotStorable,
    StoreMisused,
)
from agentkit.core.contracts.once import keeps_values
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.values import decode_value, encode_value
from agentkit.core.runtime import Services
from agentkit.state.journal.journal import Journal, insist
from agentkit.tools.outcome import MAX_RESULT_BYTES

__all__ = ["Recording"]


class Recording:
    """Keeps for the calls of a lane's newest turn.

    Args:
        journal: of the run.
        lane: whose calls.
        check: raises where the drive may not act any more.
        services: clock and chance.
    """

    def __init__(
        self, journal: Journal, *, lane: str, check: Callable[[], None], services: Services
    ) -> None:
        self._journal = journal
        self._lane = lane
        self._check = check
        self._services = services
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

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

    async def once(
        self, key: str, ttl_seconds: float, produce: Callable[[], Awaitable[object]]
    ) -> JSON:
        """The value of this key: produced once within that time, for the scope; see `Keeper`.

        Calls of this run that ask for one key wait for one another.
        """
        port = keeps_values(self._journal.port)
        if port is None:
            raise StoreMisused(
                f"once({key!r}) needs a store that keeps values, and {self._journal.port.location} "
                "does not; use SQLite (sqlite:///runs.db). Nothing was done."
            )
        async with self._turns.setdefault(key, asyncio.Lock()):
            self._check()
            token = self._services.chance.token()
            claim = await insist(
                lambda: port.claim_value(key, token=token, ttl_seconds=ttl_seconds),
                clock=self._services.clock,
            )
            if claim.state == "settled":
                return decode_value(claim.value)
            if claim.state == "open":
                raise OutcomeUnknown(
                    f"{key!r} was begun by somebody who has not said how it ended; it is not done "
                    f"again within {ttl_seconds:g} seconds from then"
                )
            value = encode_value(await produce())
            if len(value) > MAX_RESULT_BYTES:
                text = f"the value of {key!r} has {len(value)} characters"
                raise ResultNotStorable(f"{text}, the limit is {MAX_RESULT_BYTES}")
            await insist(
                lambda: port.settle_value(key, token=token, value=value),
                clock=self._services.clock,
            )
            return decode_value(value)
