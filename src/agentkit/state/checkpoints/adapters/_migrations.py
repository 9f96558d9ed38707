"""Numbered steps of a store's schema, from the `.sql` files beside the stores.

A step is the file `NNN_name.sql`. It is applied in one transaction and notes its own number in it.
A file may hold a line `-- then`: what stands before it is one statement that is repeated, each time
durable by itself, until it changes no row; what stands behind it is executed once, last. So a step
over many rows is done in small pieces, and goes on where a killed process left it.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_FILE = re.compile(r"(\d{3})_(\w+)\.sql")
_THEN = "\n-- then\n"


class Step(NamedTuple):
    """One step. `repeated`: empty for a step of one transaction."""

    number: int
    name: str
    repeated: str
    sql: str

    @property
    def script(self) -> str:
        """The step as its file says it."""
        return f"{self.repeated}{_THEN}{self.sql}" if self.repeated else self.sql


@cache
def steps(dialect: str) -> tuple[Step, ...]:
    """All steps of `_sql/{dialect}` that this release knows, in order."""
    folder = files("agentkit.state.checkpoints.adapters").joinpath("_sql", dialect)
    named = ((_FILE.fullmatch(file.name), file) for file in folder.iterdir())
    return tuple(
        sorted(
            step_of(int(match[1]), match[2], file.read_text(encoding="utf-8"))
            for match, file in named
            if match is not None
        )
    )


def step_of(number: int, name: str, text: str) -> Step:
    """The step that the text of a file says."""
    repeated, then, last = text.rpartition(_THEN)
    return Step(number, name, repeated, last if then else text)
