"""A simulated process: an event loop, threads, a heartbeat, clocks, and an end without mercy."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import cache
from typing import TypeVar, cast

from agentkit.core.contracts.heads import Lease, Renewal
from agentkit.core.contracts.heartbeat import Renewable
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.journal.lease import HEARTBEAT_SECONDS
from agentkit.state.journal.owner import owner_id
from agentkit.testing.simulation._loop import Grave, ProcessLoop
from agentkit.testing.simulation._world import Action, World

_T = TypeVar("_T")

EPOCH_SECONDS = 1_700_000_000.0
"""The wall clock's reading when a world begins, where no clock is wrong."""


class Process:
    """One process on one machine. `kill` ends it: what is in its memory reaches nothing any more.

    Args:
        world: where it lives.
        number: of all processes of the world, from 1.
        machine: where it runs; processes of one machine can prove each other's death.
        role: what it does, for the trace.

    Attributes:
        gone: it was killed.
        frozen: it is stopped, as by SIGSTOP.
        driving: it may hold a lease: the store granted one that was not given back.
        cancel: stops what it does for the run, as a client that goes away does.
    """

    def __init__(self, world: World, *, number: int, machine: int, role: str) -> None:
        self.world = world
        self.number = number
        self.machine = machine
        self.name = f"{role}{number}"
        self.gone = False
        self.frozen = False
        self.driving = False
        self.cancel: Callable[[], object] = lambda: None
        # At run time nothing of it is abstract: what is left out raises NotImplementedError.
        self.loop = ProcessLoop(world)  # type: ignore[abstract]
        self.clock = ProcessClock(self, wall_offset=0.0)
        self._owners: dict[str, str] = {}
        self._deferred: list[Action] = []
        self._drives = itertools.count(1)

    def start(self, main: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run `main` in the process's loop."""

        async def body() -> None:
            await main()

        return self.loop.create_task(body(), name="main")

    def must_live(self) -> None:
        """Raise where the process is gone: nothing that is left of it may reach anything."""
        if self.gone:
            raise Grave

    def say(self, what: str) -> None:
        """Add a line to the trace."""
        if not self.gone:
            self.world.say(self.name, what)

    # --- what may happen to it ---

    def kill(self) -> None:
        """End it now. Messages that have left it are on their way all the same."""
        self.gone = True
        self._deferred.clear()
        # What still runs while it is buried must not use up the dice of those who live.
        with self.world.other_dice():
            self.loop.bury()

    def freeze(self, seconds: float) -> None:
        """Stop it as a whole, heartbeat and tool threads included, for so long."""
        if not (self.frozen or self.gone):
            self.frozen = True
            self.loop.hold()
            self.world.after(seconds, self._thaw)

    def stall(self, seconds: float) -> None:
        """Keep its event loop busy for so long; its threads go on."""
        if not (self.loop.held or self.gone):
            self.loop.hold()
            self.world.after(seconds, self._let_go)

    def in_thread(self, seconds: float, action: Action) -> None:
        """Do `action` in a thread of the process, in so many seconds or when it is thawed."""
        self.world.after(seconds, lambda: self._thread_turn(action))

    def _thread_turn(self, action: Action) -> None:
        if self.gone:
            return
        if self.frozen:
            self._deferred.append(action)
        else:
            action()

    def _thaw(self) -> None:
        if self.gone:
            return
        self.say("goes on")
        self.frozen = False
        self.loop.let_go()
        dice = self.world.dice
        for action in self._deferred:
            self.in_thread(dice.random() * dice.choice((0.01, 3.0)), action)
        self._deferred.clear()

    def _let_go(self) -> None:
        if not (self.frozen or self.gone):
            self.loop.let_go()

    # --- names in leases ---

    def owner(self, real: str) -> str:
        """What the store gets for an owner of this process: no word of the real process, and
        nothing from which anybody's death could be proved.
        """
        if real not in self._owners:
            drive = next(self._drives)
            self._owners[real] = f"drive {drive} of {self.name}"
        return self._owners[real]

    def seen_owner(self, owner: str, holder: Process | None) -> str:
        """What this process sees for an owner in the store: its own name where it is its own, and
        where it is a process of its machine that has ended, one that is provably dead.
        """
        for real, simulated in self._owners.items():
            if simulated == owner:
                return real
        if holder is not None and holder.gone and holder.machine == self.machine:
            return provably_dead()
        return owner


@cache
def provably_dead() -> str:
    """An owner that lived on this real machine under our pid, and started at another moment."""
    *name, pid, started, drive = owner_id("d0").split()
    return " ".join([*name, pid, str(int(started) + 1), drive])


class ProcessClock:
    """A `ClockPort`: elapsed time is the world's, the wall clock may be wrong and may step."""

    def __init__(self, process: Process, *, wall_offset: float) -> None:
        self._process = process
        self.wall_offset = wall_offset

    def now(self) -> float:
        """See `ClockPort.now`."""
        return EPOCH_SECONDS + self._process.world.now + self.wall_offset

    def elapsed(self) -> float:
        """See `ClockPort.elapsed`."""
        return 1_000.0 * self._process.number + self._process.world.now

    async def sleep(self, seconds: float) -> None:
        """See `ClockPort.sleep`."""
        self._process.must_live()
        await asyncio.sleep(seconds)  # noqa: TID251 - this is a clock port, on virtual time


class ProcessChance:
    """A `ChancePort` on the world's dice."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def token(self) -> str:
        """See `ChancePort.token`."""
        self._process.must_live()
        return f"{self._process.world.dice.getrandbits(128):032x}"

    def fraction(self) -> float:
        """See `ChancePort.fraction`."""
        self._process.must_live()
        return self._process.world.dice.random()


class ProcessThreads:
    """`ToolThreads`: a call waits for its thread, happens at one instant, and is heard of later.

    Args:
        process: whose threads these are.
        wait: draws how long a call waits for its thread.
        end: draws how long after what the call does its thread ends, and the loop hears of it.
    """

    def __init__(
        self, process: Process, wait: Callable[[], float], end: Callable[[], float]
    ) -> None:
        self._process = process
        self._wait = wait
        self._end = end

    def submit(self, call: Callable[[], _T]) -> Awaitable[_T]:
        """See `ToolThreads.submit`."""
        self._process.must_live()
        future: asyncio.Future[_T] = self._process.loop.create_future()

        context = copy_context()

        def work() -> None:
            value: _T | None = None
            error: BaseException | None = None
            try:
                value = context.run(call)
            except BaseException as exc:  # noqa: BLE001 - it belongs to whoever awaits the call
                error = exc
            self._process.in_thread(
                self._end(),
                lambda: self._answer(future, value, error),
            )

        self._process.in_thread(self._wait(), work)
        return future

    def _answer(
        self, future: asyncio.Future[_T], value: _T | None, error: BaseException | None
    ) -> None:
        self._process.loop.call_soon_threadsafe(_settle, future, value, error)


def _settle(future: asyncio.Future[_T], value: _T | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(cast("_T", value))
    else:
        future.set_exception(error)


class Renewer:
    """A `HeartbeatPort`: what `ThreadHeartbeat` does in a thread, done on the virtual clock.

    One renewal for all leases every `HEARTBEAT_SECONDS`; it is sent at one moment, counted by the
    store at a later one, and heard of at a still later one, or never.

    Args:
        process: whose heartbeat it is.
        send: sends leases to the store; its second argument hears the answer, or that there is
            none.
    """

    def __init__(
        self,
        process: Process,
        send: Callable[[dict[str, Lease], Callable[[dict[str, Renewal] | None], None]], None],
    ) -> None:
        self._process = process
        self._send = send
        self._watched: dict[str, Renewable] = {}
        self._numbers = itertools.count(1)
        self._beating = False

    @property
    def clock(self) -> ClockPort:
        """See `HeartbeatPort.clock`."""
        return self._process.clock

    def watch(self, port: JournalPort, held: Renewable) -> None:
        """See `HeartbeatPort.watch`."""
        del port  # there is one store
        self._process.must_live()
        self._watched[f"{held.lease.run}#{next(self._numbers)}"] = held
        if not self._beating:
            self._beating = True
            self._process.in_thread(HEARTBEAT_SECONDS, self._beat)

    def unwatch(self, held: Renewable) -> None:
        """See `HeartbeatPort.unwatch`."""
        self._watched = {key: one for key, one in self._watched.items() if one is not held}

    def _beat(self) -> None:
        if not self._watched:
            self._beating = False
            return
        due = {key: one.lease for key, one in self._watched.items() if one.wants_renewal()}
        sent_at = self.clock.elapsed()
        if not due:
            self._process.in_thread(HEARTBEAT_SECONDS, self._beat)
            return

        def heard(renewals: dict[str, Renewal] | None) -> None:
            for key, renewal in (renewals or {}).items():
                if key in self._watched:
                    self._watched[key].take(renewal, sent_at=sent_at)
            rest = sent_at + HEARTBEAT_SECONDS - self.clock.elapsed()
            self._process.in_thread(max(rest, 0.0), self._beat)

        self._send(due, heard)
