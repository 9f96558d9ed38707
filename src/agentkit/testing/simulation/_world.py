"""Virtual time, the dice, and the order in which everything happens.

A world is one thread of the real machine that plays any number of simulated processes. Each of them
has an event loop of its own, which runs its callbacks strictly in the order in which asyncio would;
the dice decide whose turn it is, how long messages take, and so what every loop finds next. When
nobody has anything to run, the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random  # noqa: TID251 - seeded: these dice are replayed
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from agentkit.testing.simulation._loop import ProcessLoop

Action: TypeAlias = Callable[[], None]
_Due: TypeAlias = tuple[float, int, ProcessLoop | None, asyncio.TimerHandle | Action]

MAX_STEPS: Final = 200_000
"""Callbacks after which a world is taken to be going round in circles."""


class World:
    """One schedule's universe.

    Args:
        seed: of the dice; everything that happens follows from it.
        traced: whether `lines` are kept.

    Attributes:
        now: seconds since the world began.
        dice: the only source of chance.
        steps: callbacks that ran so far.
        lines: what happened, for people; `None` where nobody wants to know.
        after_step: called after each callback, with the loop that ran it.
        accidents: what the loops were told of as nobody's fault: errors in callbacks.
    """

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.now = 0.0
        self.dice = random.Random(seed)  # noqa: S311 - no secret
        self.steps = 0
        self.lines: list[str] | None = [] if traced else None
        self.after_step: Callable[[ProcessLoop], None] = lambda _: None
        self.accidents: list[str] = []
        self._due: list[_Due] = []
        self._inside: ProcessLoop | None = None
        self._numbers = itertools.count()
        self._runnable: list[ProcessLoop] = []

    def say(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        if self.lines is not None:
            self.lines.append(f"{self.now:10.4f}  {who:10}  {what}")

    def likely(self, probability: float) -> bool:
        """Throw the dice: `True` in so many of all cases."""
        return self.dice.random() < probability

    @contextmanager
    def other_dice(self) -> Iterator[None]:
        """Let nothing that happens meanwhile have a part in what comes after it."""
        mine, self.dice = self.dice, random.Random(0)  # noqa: S311 - no secret
        try:
            yield
        finally:
            self.dice = mine

    def after(self, seconds: float, action: Action) -> None:
        """Let `action` happen outside of all loops, `seconds` from now."""
        self._push(self.now + seconds, None, action)

    def timer(self, loop: ProcessLoop, handle: asyncio.TimerHandle) -> None:
        """Hand `handle` to `loop` when its time has come."""
        self._push(handle.when(), loop, handle)

    def wake(self, loop: ProcessLoop) -> None:
        """`loop` has something to run."""
        self._runnable.append(loop)

    def run(self, deadline: Callable[[], float]) -> bool:
        """Let everything happen; whether the world came to rest before `deadline()`."""
        hooks = sys.get_asyncgen_hooks()
        try:
            while self.steps < MAX_STEPS:
                if self._runnable:
                    self._turn()
                elif not self._jump():
                    return True
                elif self.now > deadline():
                    return False
            return False
        finally:
            self._enter(None)
            sys.set_asyncgen_hooks(*hooks)

    def _push(
        self, when: float, loop: ProcessLoop | None, what: asyncio.TimerHandle | Action
    ) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), loop, what))

    def _turn(self) -> None:
        """One callback of one loop that has something to run."""
        runnable = self._runnable
        place = int(self.dice.random() * len(runnable)) if len(runnable) > 1 else 0
        loop = runnable[place]
        self._enter(loop)
        if loop.turn():
            self.steps += 1
            self.after_step(loop)
        if not loop.may_run():
            loop.listed = False
            runnable.remove(loop)

    def _jump(self) -> bool:
        """To the next thing that is due; `False` where nothing is left."""
        while self._due:
            when, _, loop, what = heapq.heappop(self._due)
            if isinstance(what, asyncio.TimerHandle):
                if what.cancelled() or loop is None or loop.is_closed():
                    continue
                self.now = max(self.now, when)
                loop.due(what)
            else:
                self.now = max(self.now, when)
                self._enter(None)
                what()
            return True
        return False

    def _enter(self, loop: ProcessLoop | None) -> None:
        """Be inside the loop for asyncio, or in none."""
        if loop is not self._inside:
            self._inside = loop
            asyncio._set_running_loop(loop)  # noqa: SLF001 - for event loop implementations
            sys.set_asyncgen_hooks(finalizer=None if loop is None else loop.finalize)
