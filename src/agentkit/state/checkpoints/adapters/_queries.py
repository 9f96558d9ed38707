"""Named statements from the `.sql` files beside the stores."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_STATEMENT = re.compile(r"^-- name: (\w+)\n-- .+\n", re.MULTILINE)


@cache
def queries(dialect: str) -> dict[str, str]:
    """All statements of `_sql/{dialect}/*.sql` by name.

    A statement begins with `-- name: x` and one more comment line that says what it does.
    """
    found: dict[str, str] = {}
    folder = files("agentkit.state.checkpoints.adapters").joinpath("_sql", dialect)
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".sql"):
            parts = _STATEMENT.split(file.read_text(encoding="utf-8"))
            found.update(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))
    return found
