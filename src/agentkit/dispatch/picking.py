"""Which runs a worker takes next, and how long it lets one be that failed it: pure rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from agentkit.core.contracts.heads import Claimable

__all__ = [
    "FIRST_REST_SECONDS",
    "LONGEST_REST_SECONDS",
    "Key",
    "Rests",
    "key_of",
    "next_rest",
    "pick",
]

FIRST_REST_SECONDS = 1.0
"""How long a run is let be that a worker could do nothing for, or failed at; twice as long after
each further failure."""

LONGEST_REST_SECONDS = 300.0
"""The longest of these."""

Key: TypeAlias = tuple[str, str]
"""A scope's key and a run's id."""

_WINDOW = 4
"""Runs looked at for each that is taken, so that workers on one store seldom want the same one."""


def key_of(one: Claimable) -> Key:
    """The run that this is."""
    return one.scope, one.run


def pick(
    due: Sequence[Claimable],
    *,
    beside: Collection[Key],
    free: int,
    spread: float,
    is_dead: Callable[[str], bool],
) -> list[Claimable]:
    """The runs to take now, at most `free`.

    Args:
        due: those that want a worker, the longest due first.
        beside: runs that are worked on here already, or rest.
        free: how many can be taken.
        spread: in [0, 1), where among the first ones to begin.
        is_dead: whether it is proved that this owner will never act again.
    """
    wanted = [
        one for one in due if key_of(one) not in beside and (not one.held or is_dead(one.owner))
    ]
    window = wanted[: free * _WINDOW]
    begin = int(spread * len(window))
    return [*window[begin:], *window[:begin]][:free]


def next_rest(seconds: float) -> float:
    """How long to let be what failed again, after a rest of so many `seconds`."""
    return min(max(seconds * 2, FIRST_REST_SECONDS), LONGEST_REST_SECONDS)


class Rests:
    """Runs that are let be for a while.

    Args:
        elapsed: the time, in seconds.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._until: dict[Key, float] = {}
        self._seconds: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    @property
    def failing(self) -> int:
        """How many of them rest because the last attempt at them failed."""
        return len(self._seconds)

    def after_nothing(self, key: Key) -> None:
        """There was nothing to do for this run, or not here."""
        self._until[key] = self._elapsed() + FIRST_REST_SECONDS

    def after_failure(self, key: Key) -> float:
        """An attempt at this run failed; for how many seconds it rests."""
        seconds = self._seconds[key] = next_rest(self._seconds.get(key, 0.0))
        self._until[key] = self._elapsed() + seconds
        return seconds

    def end(self, key: Key) -> None:
        """It went well."""
        self._until.pop(key, None)
        self._seconds.pop(key, None)

    def resting(self) -> set[Key]:
        """Those whose time is not over. A failure that lies far behind is forgotten."""
        now = self._elapsed()
        for key in [key for key, until in self._until.items() if now > until]:
            if key not in self._seconds or now > self._until[key] + LONGEST_REST_SECONDS:
                self.end(key)
        return {key for key, until in self._until.items() if until > now}
