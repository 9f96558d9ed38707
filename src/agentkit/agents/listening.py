"""What a drive hears of its run from outside while it works, and what that forbids."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agentkit.agents.attention import Attention
from agentkit.agents.decide import without_acts
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import LeaseLost, RunError, StoreError
from agentkit.core.contracts.ports import ClockPort
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, insist

__all__ = ["Listener"]

_log = logging.getLogger(__name__)


class Listener:
    """Reads what others have appended as soon as the heartbeat tells that something is there.

    Args:
        journal: of the run.
        lose: called where reading shows that another worker has taken the run.
        attention: of the drive.
        clock: for the waits between attempts at a store that fails.
        wake: has the drive look at its calls; called in the drive's loop.
    """

    def __init__(
        self,
        journal: Journal,
        attention: Attention,
        *,
        lose: Callable[[], None],
        clock: ClockPort,
        wake: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._attention = attention
        self._lose = lose
        self._clock = clock
        self._wake = wake
        self._closed = False
        self._looking: set[asyncio.Task[None]] = set()
        attention.on_change = wake

    @property
    def _state(self) -> RunState:
        return self._journal.state

    @property
    def left(self) -> bool:
        """Whether the run was left because this worker was told to stop."""
        return self._attention.draining and self._state.status == "running"

    def must_stop(self) -> bool:
        """Whether what is under way is to be cut off."""
        return self._attention.hurried or self._state.cancel is not None

    def may_not_begin(self) -> bool:
        """Whether no act may begin any more."""
        return self._attention.draining or self._state.stopping

    def held(self, bodies: list[e.Body]) -> list[e.Body]:
        """What is recorded of these by a worker that may have been told to stop."""
        return without_acts(bodies) if self._attention.draining else bodies

    def hear(self) -> None:
        """The heartbeat's call, from its own thread: the head moved or the lease is lost."""
        self._attention.call_threadsafe(self._hear)

    def close(self) -> None:
        """The drive ends; nothing is read for it any more."""
        self._closed = True
        self._attention.close()
        for looking in self._looking:
            looking.cancel()

    def _hear(self) -> None:
        if not self._closed:
            task = asyncio.get_running_loop().create_task(self._look())
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _look(self) -> None:
        self._wake()  # a lost lease needs no reading
        try:
            await insist(self._journal.refresh, clock=self._clock)
        except LeaseLost:
            self._lose()
        except (StoreError, RunError) as error:
            _log.warning("run %r: its news cannot be read: %s", self._state.run_id, error)
        self._attention.poke()
        self._wake()
