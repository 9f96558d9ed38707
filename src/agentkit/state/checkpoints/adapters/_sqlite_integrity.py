"""SQLite's own check of the structure of a file, within a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_errors import driver
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

if TYPE_CHECKING:
    import apsw

_ID = "agentkit-integrity"
_STEPS = 10_000
_SOUND = ["ok"]


def check_integrity(
    db: apsw.Connection, clock: StoreClock, *, limit_seconds: float
) -> list[str] | None:
    """What is wrong, at most 20 findings; `None` if the time was not enough to tell."""
    until_ms = clock.elapsed_ms() + round(limit_seconds * 1000)
    db.set_progress_handler(lambda: clock.elapsed_ms() >= until_ms, _STEPS, id=_ID)
    try:
        found = [str(line) for (line,) in db.execute(queries("sqlite")["integrity"])]
    except driver().InterruptError:
        return None
    finally:
        db.set_progress_handler(None, id=_ID)
    return [] if found == _SOUND else found
