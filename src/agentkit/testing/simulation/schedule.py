"""One schedule: a run, its workers and people, everything that goes wrong, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal import owner
from agentkit.testing._facts import Story, tell
from agentkit.testing.invariants import Evidence, Violation, check
from agentkit.testing.simulation._loop import ProcessLoop
from agentkit.testing.simulation._network import NetworkStore
from agentkit.testing.simulation._outside import RUN, Here, Outside, draw_script
from agentkit.testing.simulation._policies import KINDS, POLICIES, UNSAFE
from agentkit.testing.simulation._process import EPOCH_SECONDS, Process
from agentkit.testing.simulation._verdict import doubles, kept_words, seen_in, was_given
from agentkit.testing.simulation._visitors import Decider, Messenger, Stopper
from agentkit.testing.simulation._weather import Weather
from agentkit.testing.simulation._witness import Witness
from agentkit.testing.simulation._workers import (
    LOOK_SECONDS,
    MOST_IDLE,
    START_SECONDS,
    Inhabitant,
    Operator,
    Person,
    Worker,
)
from agentkit.testing.simulation._world import World

__all__ = ["LIVENESS_SECONDS", "SIGHTS", "Outcome", "StoreMaker", "simulate"]

SIGHTS: Final = (
    "questions",
    "happened",
    "cannot happen",
    "told to the model",
    "late outcomes",
    "settled by an operator",
    "parked for recoveries",
    "unparked by an operator",
    "approved",
    "rejected",
    "edited",
    "answered",
    "refused",
    "times that came",
    "deadlines",
    "events",
    "messages",
    "paused",
    "cancelled",
    "told recorded",
    "told repeated",
    "told too late",
    "told refused",
)
"""What is counted beside faults: questions asked, what `reconcile` found, calls that the model was
told of, outcomes told by workers without the lease, what operators did; what people decided and
were told, calls that were not made for it; waits that the time has ended; and notes of all kinds.
"""

LIVENESS_SECONDS: Final = 200.0 + MOST_IDLE * LOOK_SECONDS[1]
"""Virtual seconds, from when the last fault is over, in which a run must have come to its end."""

StoreMaker = Callable[[ClockPort], JournalPort]
"""Makes the store of a schedule. It must do everything at once: only the network takes time."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of one schedule.

    Args:
        seed: of its dice.
        violations: what must never be.
        steps: callbacks that ran.
        virtual_seconds: how long it took on the virtual clock.
        completed: the run finished.
        cancelled: it was cancelled.
        faults: faults that happened, by kind.
        takeovers: leases that were taken from somebody who had not given them back.
        seen: what else is worth counting, by kind; see `SIGHTS`.
        calls: calls that had an effect or a read, by policy.
        doubled: effects beyond the first of each call that the runtime made on its own, by policy.
        asked_for: effects beyond the first of each call that a person ordered.
        trace: what happened, for people; empty unless asked for.
    """

    seed: int
    violations: tuple[Violation, ...]
    steps: int
    virtual_seconds: float
    completed: bool
    faults: dict[str, int]
    takeovers: int
    seen: dict[str, int]
    calls: dict[str, int]
    doubled: dict[str, int]
    asked_for: int
    cancelled: bool = False
    trace: tuple[str, ...] = ()


def simulate(
    seed: int,
    *,
    policies: Collection[str] = (),
    store: StoreMaker | None = None,
    traced: bool = False,
) -> Outcome:
    """Play the schedule of `seed`; everything about it follows from the arguments.

    Args:
        seed: any whole number.
        policies: those of the tools that the model calls, such as `ask` (see
            `docs/explanation/simulation.md`); all where none are named.
        store: makes the store, given its clock; by default `InMemoryCheckpointStore`.
        traced: whether to keep the trace.

    Raises:
        RuntimeError: called inside a running event loop.
        ValueError: there is no such policy.
    """
    if unknown := {*policies} - {*POLICIES.values()}:
        raise ValueError(
            f"no policies: {sorted(unknown)}; known are {sorted({*POLICIES.values()})}"
        )
    tools = [name for name, policy in POLICIES.items() if not policies or policy in policies]
    with _alone():
        return _Schedule(seed, store or _memory, tools, traced=traced).play()


class _StoreClock:
    """The store's own clock: its wall time has nothing to do with that of the processes."""

    def __init__(self, world: World, wall_offset: float) -> None:
        self._world = world
        self._wall_offset = wall_offset

    def now(self) -> float:
        return EPOCH_SECONDS + self._world.now + self._wall_offset

    def elapsed(self) -> float:
        return self._world.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"the store slept for {seconds} s")


class _Schedule:
    """A world with its inhabitants."""

    def __init__(self, seed: int, store: StoreMaker, tools: Sequence[str], *, traced: bool) -> None:
        self.seed = seed
        self.world = World(seed, traced=traced)
        dice = self.world.dice
        self.store = store(_StoreClock(self.world, dice.uniform(-500.0, 500.0)))
        self.outside = Outside(draw_script(dice, tools))
        self.weather = Weather(self.world)
        self.weather.crash = self._crash
        self.witness = Witness(self.world, self.weather, self._rows)
        self.errors: list[str] = []
        self._machines = dice.choice((1, 2, 2))
        self._numbers = 0
        self._living = self.weather.living
        self._max_recoveries = dice.choice((1, 2, 5))
        self._roles: dict[Process, type[Inhabitant]] = {}
        self._process_of: dict[ProcessLoop, Process] = {}
        for _ in range(dice.choice((1, 2, 2, 2, 3))):
            self._spawn(Worker)
        for _ in range(dice.choice((1, 1, 1, 2))):
            self._spawn(Person)
        for _ in range(dice.choice((0, 0, 1))):
            self._spawn(Operator)
        for _ in range(dice.choice((0, 0, 0, 1, 2))):
            self._spawn(Decider)
        for _ in range(dice.choice((0, 0, 1))):
            self._spawn(Messenger)
        for _ in range(dice.choice((0, 0, 0, 1))):
            self._spawn(Stopper)
        self.world.after_step = self._after_step

    def play(self) -> Outcome:
        """Let it all happen, and judge."""
        rested = self.world.run(self._deadline)
        for process in self._living:
            process.kill()
        rows = self._rows()
        story = tell(rows)
        doubled, asked_for = doubles(story, self.outside)
        end = "" if story.end is None else story.end.kind
        return Outcome(
            seed=self.seed,
            violations=tuple(self._violations(rows, story, rested=rested)),
            steps=self.world.steps,
            virtual_seconds=self.world.now,
            completed=end == "finished",
            cancelled=end == "cancelled",
            faults=dict(sorted(self.weather.fired.items())),
            takeovers=self.witness.takeovers,
            seen=seen_in(story, self.outside),
            calls=dict(sorted(Counter(POLICIES[one.name] for one in story.calls.values()).items())),
            doubled=doubled,
            asked_for=asked_for,
            trace=tuple(self.world.lines or ()),
        )

    def _deadline(self) -> float:
        """When the run must have ended; once it has, everybody may take their time to notice."""
        weather = self.weather
        if self.witness.ended or not weather.calm:
            return math.inf
        return weather.settled_from + LIVENESS_SECONDS

    # --- inhabitants ---

    def _spawn(self, role: type[Inhabitant]) -> None:
        self._numbers += 1
        dice = self.world.dice
        process = Process(
            self.world,
            number=self._numbers,
            machine=dice.randint(1, self._machines),
            role=role.__name__.lower(),
        )
        process.clock.wall_offset = dice.uniform(-90.0, 90.0)
        here = Here(process, self.outside, self.weather, self.witness)
        store = NetworkStore(self.store, process, weather=self.weather, witness=self.witness)
        inhabitant = role(here, store, max_recoveries=self._max_recoveries)
        self._living.append(process)
        self._roles[process] = role
        self._process_of[process.loop] = process
        main = process.start(inhabitant.live)
        main.add_done_callback(lambda task: self._left(process, task))

    def _left(self, process: Process, task: asyncio.Task[None]) -> None:
        if not process.gone and not task.cancelled() and task.exception() is not None:
            self.errors.append(f"{process.name}: {task.exception()!r}")

    def _after_step(self, loop: ProcessLoop) -> None:
        self.weather.step(self._process_of[loop])

    def _crash(self, process: Process) -> None:
        """Kill it; somebody starts it again, here or on another machine."""
        process.kill()
        self._living.remove(process)
        role = self._roles[process]
        seconds = self.world.dice.choice((0.05, self.world.dice.uniform(0.5, 20.0)))
        self.weather.lasts(seconds + START_SECONDS)
        self.world.after(seconds, lambda: self._spawn(role))

    # --- the verdict ---

    def _rows(self) -> tuple[Row, ...]:
        try:
            self.store.read(RUN, limit=100_000).send(None)
        except StopIteration as done:
            return tuple(done.value)
        raise AssertionError("the store took time: only the network may")

    def _violations(
        self, rows: tuple[Row, ...], story: Story, *, rested: bool
    ) -> Iterator[Violation]:
        outside = self.outside
        evidence = Evidence(
            run=RUN,
            rows=rows,
            effects=tuple(outside.effects),
            promises=tuple(outside.promises),
            answers=tuple(outside.answers),
            tools=KINDS,
            earlier=tuple(self.witness.earlier),
        )
        yield from check(evidence)
        for name, what in (*kept_words(story, outside), *was_given(story)):
            yield Violation(name, RUN, what)
        for what in self.witness.stopped_too_late:
            yield Violation("I10", RUN, what)
        for policy, times in doubles(story, outside)[0].items():
            if times and policy not in UNSAFE:
                yield Violation("I2", RUN, f"policy {policy}: {times} doubled effects")
        for what in self.witness.late:
            yield Violation("L2", RUN, what)
        if not rested:
            yield Violation("L1", RUN, f"it went on for {self.world.now:.0f} s without an end")
        elif story.end is None:
            yield Violation("L1", RUN, "nobody works on it any more, and it has no end")
        for what in (*self.errors, *self.world.accidents):
            yield Violation("L1", RUN, f"an error that nobody expects: {what}")


def _memory(clock: ClockPort) -> JournalPort:
    return InMemoryCheckpointStore(clock=clock)


@contextmanager
def _alone() -> Iterator[None]:
    """Without log lines, which belong to no real run; without the garbage collector, which would
    end dropped objects of the schedule at moments that depend on the process's past; and without
    asking the system for each simulated process who the real one is: they are all in it.
    """
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public getter raises
        raise RuntimeError("a simulation cannot be played inside a running event loop")
    collecting, disabled = gc.isenabled(), logging.root.manager.disable
    asked = owner._this_process  # noqa: SLF001 - our own
    me = asked("real")
    gc.disable()
    owner._this_process = lambda drive: me._replace(drive=drive)  # noqa: SLF001 - our own
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        owner._this_process = asked  # noqa: SLF001 - our own
        logging.disable(disabled)
        if collecting:
            gc.enable()
