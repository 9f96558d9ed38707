"""What goes wrong in a schedule, drawn from its dice and counted when it really happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from agentkit.testing.simulation._process import Process
from agentkit.testing.simulation._world import World

KINDS: Final = (
    "crash",
    "pause",
    "stall",
    "cancel",
    "clock step",
    "lost request",
    "lost answer",
    "duplicate",
    "slow message",
    "model failure",
    "tool failure",
    "hung tool",
    "no thread free",
    "late end",
    "slow request",
    "fatal act",
)
"""Every fault there is, by the name under which it is counted."""

_BLOWS: Final = ("crash", "crash", "pause", "pause", "pause", "stall", "cancel", "clock step")
_LAST_BLOW: Final = 90
_LAST_WAIT: Final = 8
_PAUSES: Final = ((0.5, 14.0), (18.0, 50.0), (30.0, 58.0))
_LAST_MESSAGE: Final = 20
_TIMES: Final = MappingProxyType(
    {"hung tool": 0.25, "no thread free": 3.0, "late end": 3.0, "slow request": 3.0}
)
_STRAY: Final = 0.1
_FATAL: Final = 0.8
_LAST_FATAL: Final = 8


class Fate(NamedTuple):
    """What becomes of a message.

    Args:
        there_seconds: how long the request travels.
        back_seconds: how long its answer does.
        request_lost: it never arrives.
        answer_lost: it arrives, and nobody hears of it.
        again_seconds: when it arrives a second time.
    """

    there_seconds: float
    back_seconds: float
    request_lost: bool = False
    answer_lost: bool = False
    again_seconds: float | None = None

    def unheard(self, patience_seconds: float) -> bool:
        """Whether its sender gets no answer while it waits for one."""
        late = self.there_seconds + self.back_seconds > patience_seconds
        return self.request_lost or self.answer_lost or late


class Weather:
    """The faults of one schedule, until it clears up.

    Blows (crash, pause, stall, cancellation, a step of the clock) hit a process between two
    callbacks of its loop, which is at any of its awaits: most of them one that holds the run's
    lease or believes so. Some come after a number of callbacks, so that each await is as likely as
    any other; some at a time, so that long acts are hit as often as they are long; some at a wait
    inside of a tool or of the model, where an act is half done; and some while a message to the
    store is under way. Everything else hits single messages, calls and answers.

    Args:
        world: whose dice are used.

    Attributes:
        fired: faults that happened, by kind.
        calm: none happens any more.
        settled_from: when the last effect of a fault that was foreseen is over.
        living: the processes that may be hit.
        crash: ends a process and sees to what comes after it.
    """

    def __init__(self, world: World) -> None:
        dice = world.dice
        self.world = world
        self.fired: Counter[str] = Counter()
        self.calm = False
        self.settled_from = 0.0
        self.living: list[Process] = []
        self.crash: Callable[[Process], None] = Process.kill
        self._blows = [
            (dice.randint(1, _LAST_BLOW), dice.choice(_BLOWS))
            for _ in range(dice.choice((0, 1, 1, 2)))
        ]
        self._blows.sort(reverse=True)
        for _ in range(dice.choice((0, 0, 1, 2))):
            kind = dice.choice(_BLOWS)
            world.after(dice.uniform(0.5, 25.0), partial(self._strike_driver, kind))
        self._inside = {
            dice.randint(1, _LAST_WAIT): dice.choice(_BLOWS)
            for _ in range(dice.choice((0, 1, 1, 2)))
        }
        rough = dice.choice((0.0, 0.0, 0.01, 0.04, 0.12))
        self._bad_message = rough
        self._bad_call = dice.choice((0.0, 0.0, 0.05, 0.2))
        self._under_way = {
            dice.randint(1, _LAST_MESSAGE): dice.choice(_BLOWS) for _ in range(dice.choice((0, 1)))
        }
        self._messages = 0
        self._steps = 0
        self._waits = 0
        self._fatal_acts = dice.choice((0,) * 11 + (dice.randint(2, _LAST_FATAL),))
        world.after(dice.uniform(5.0, 60.0) + 6.0 * self._fatal_acts, self._clear_up)

    # --- blows ---

    def step(self, process: Process) -> None:
        """A callback of the process ran; this may be the moment."""
        if not self._blows or self.calm:
            return
        if process.driving or self.world.likely(_STRAY):
            self._steps += 1
            if self._steps >= self._blows[-1][0] and not process.gone:
                self._strike(self._blows.pop()[1], process)

    def wait_inside(self, process: Process) -> None:
        """A tool or the model of the process is about to wait; this may be the moment. In some
        schedules it mostly is, for one worker after the other: what they do kills them.
        """
        self._waits += 1
        if self._fatal_acts and self.world.likely(_FATAL):
            self._fatal_acts -= 1
            self._strike_soon("fatal act", process, 0.0)
        self._strike_soon(self._inside.get(self._waits), process, 0.0)

    def soon_dead(self, process: Process, seconds: float) -> None:
        """It dies in the middle of what it does now, unless the weather is calm."""
        self._strike_soon("crash", process, seconds)

    def _strike_soon(self, kind: str | None, process: Process, seconds: float) -> None:
        if kind is not None and not self.calm:
            self.world.after(seconds, lambda: None if process.gone else self._strike(kind, process))

    def _strike_driver(self, kind: str) -> None:
        """Hit one that may hold the lease now."""
        driving = [one for one in self.living if one.driving and not one.gone]
        if driving and not self.calm:
            self._strike(kind, self.world.dice.choice(driving))

    def _strike(self, kind: str, process: Process) -> None:
        dice = self.world.dice
        self.fired[kind] += 1
        if kind in {"crash", "fatal act"}:
            process.say("crashes")
            self.crash(process)
        elif kind == "pause":
            seconds = dice.uniform(*dice.choice(_PAUSES))
            process.say(f"stands still for {seconds:.1f} s")
            process.freeze(seconds)
            self.lasts(seconds)
        elif kind == "stall":
            seconds = dice.uniform(0.5, 25.0)
            process.say(f"its loop is busy for {seconds:.1f} s")
            process.stall(seconds)
            self.lasts(seconds)
        elif kind == "cancel":
            process.say("is told to stop what it does")
            process.cancel()
        else:
            process.clock.wall_offset += dice.uniform(-4_000.0, 4_000.0)
            process.say(f"its wall clock is {process.clock.wall_offset:+.0f} s off now")

    # --- messages and calls ---

    def message(self, process: Process) -> Fate:
        """The fate of the next message of a process."""
        dice = self.world.dice
        there, back = 0.001 + 0.02 * dice.random(), 0.001 + 0.02 * dice.random()
        if process.driving and self._under_way:
            self._messages += 1
            kind = self._under_way.pop(self._messages, None)
            self._strike_soon(kind, process, dice.uniform(0.0, there + back))
        if self.calm or not self.world.likely(self._bad_message):
            return Fate(there, back)
        kind = dice.choice(("lost request", "lost answer", "duplicate", "slow message"))
        self.fired[kind] += 1
        process.say(f"{kind}:")
        if kind == "lost request":
            return Fate(there, back, request_lost=True)
        if kind == "lost answer":
            return Fate(there, back, answer_lost=True)
        if kind == "duplicate":
            again = there + dice.expovariate(0.2)
            self.lasts(again)
            return Fate(there, back, again_seconds=again)
        there = dice.choice((dice.uniform(0.1, 4.0), dice.uniform(3.0, 30.0)))
        self.lasts(there)
        return Fate(there, back)

    def lag(self) -> float:
        """How long something outside takes."""
        dice, usual = self.world.dice, self.world.likely(0.8)
        return dice.expovariate(2.0) if usual else dice.uniform(1.0, 8.0)

    def thread(self) -> float:
        """How long a call waits for a thread."""
        dice = self.world.dice
        if self.failure("no thread free"):
            return dice.uniform(0.5, 40.0)
        return dice.random() * 0.02

    def ending(self) -> float:
        """How long a thread goes on after what it did, or a tool that takes no notice of time."""
        dice = self.world.dice
        return dice.uniform(0.5, 40.0) if self.failure("late end") else dice.random() * 0.02

    def journey(self) -> float:
        """How long a request to a system outside is on its way."""
        dice = self.world.dice
        if not self.failure("slow request"):
            return dice.expovariate(4.0)
        seconds = dice.uniform(1.0, 50.0)
        self.lasts(seconds)
        return seconds

    def failure(self, kind: str) -> bool:
        """Whether the next call or answer is hit by `kind`."""
        if self.calm or not self.world.likely(self._bad_call * _TIMES.get(kind, 1.0)):
            return False
        self.fired[kind] += 1
        return True

    def lasts(self, seconds: float) -> None:
        """A fault that has happened is felt for so long."""
        self.settled_from = max(self.settled_from, self.world.now + seconds)

    def _clear_up(self) -> None:
        self.calm = True
        self.lasts(0.0)
        self.world.say("weather", "no faults from here on")
