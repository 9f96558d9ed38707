"""Numbers that other programs on the machine disturb little: medians, and ratios pair by pair."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self


class Cost(NamedTuple):
    """Microseconds of wall time and of the process's CPU time."""

    wall: float
    cpu: float

    def per(self, count: int) -> Cost:
        """The cost of one of `count`."""
        return Cost(self.wall / count, self.cpu / count)


class Stopwatch:
    """`with Stopwatch() as watch: …`, then `watch.cost`."""

    def __enter__(self) -> Self:
        self._began = (time.perf_counter(), time.process_time())
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._began
        self.cost = Cost((time.perf_counter() - wall) * 1e6, (time.process_time() - cpu) * 1e6)


def median(costs: Sequence[Cost]) -> Cost:
    """The medians of wall and CPU time, each by itself."""
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
    )


def ratios(ours: Sequence[Cost], others: Sequence[Cost]) -> Cost:
    """The medians of ours / theirs, taken pair by pair: both of a pair ran right after each other,
    so that what else the machine does falls on both.
    """
    return median([Cost(a.wall / b.wall, a.cpu / b.cpu) for a, b in zip(ours, others, strict=True)])


def shown(cost: Cost) -> str:
    """`wall / cpu`, in microseconds."""
    return f"{cost.wall:,.0f} / {cost.cpu:,.0f}"


def times(ratio: Cost) -> str:
    """`wall / cpu` of a ratio."""
    return f"{ratio.wall:.2f} / {ratio.cpu:.2f}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table under its title."""
    body = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *body, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return f"| {' | '.join(padded)} |"

    rule = line(["-" * width for width in widths])
    return "\n".join([f"## {title}", "", line(columns), rule, *map(line, body), ""])


def budget(value: float, limit: float, show: Callable[[float], str] = "{:.2f}".format) -> str:
    """Whether a value is within its budget."""
    word = "holds" if value <= limit else "MISSED"
    return f"{word}: {show(value)}, budget {show(limit)}"
