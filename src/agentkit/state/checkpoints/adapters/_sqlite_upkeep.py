"""Upkeep of a SQLite file: its schema, and the space that removed runs have left in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.upkeep import Migration, Reclaimed
from agentkit.state.checkpoints.adapters import _migrations as migrations
from agentkit.state.checkpoints.adapters._lanes import Outcome, Seat
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_errors import driver, driver_errors
from agentkit.state.checkpoints.adapters._sqlite_files import SqliteFile
from agentkit.state.checkpoints.adapters._sqlite_writer import (
    MakeLane,
    SqliteConnector,
    SqliteLane,
    Work,
)
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

if TYPE_CHECKING:
    import apsw

T = TypeVar("T")

_WORTH = 0.1
"""The file is written anew where so much of it is free; less is soon used again by new runs."""

_ID = "agentkit-reclaim"
_STEPS = 10_000


class Upkeep:
    """What is done to a whole file, each time on a connection of its own.

    Args:
        file: the database.
        clock: bounds what takes long.
        lane: makes what operations run on.
    """

    def __init__(self, file: SqliteFile, clock: StoreClock, lane: MakeLane) -> None:
        self._file = file
        self._clock = clock
        self._make = lane

    async def reclaim(self, *, limit_seconds: float) -> Reclaimed:
        """See `ReclaimPort.reclaim`."""
        return await self._on_lane(partial(self._give_back, limit_seconds=limit_seconds))

    def migrations(self) -> list[Migration]:
        """See `MigrationPort.migrations`."""
        schema = self._file.schema()
        return [
            Migration(step.number, step.name, step.script, step.number <= schema)
            for step in migrations.steps("sqlite")
        ]

    async def migrate(self) -> list[Migration]:
        """See `MigrationPort.migrate`: opening the file does it."""
        lacking = [step for step in self.migrations() if not step.applied]
        await self._on_lane(lambda _: None)
        return lacking

    async def _on_lane(self, work: Callable[[apsw.Connection], T]) -> T:
        lane: SqliteLane = self._make(
            Seat(SqliteConnector(self._file)),
            partial(_by_itself, path=self._file.path),
            "agentkit-sqlite-upkeep",
        )
        try:
            return await lane.submit(work)
        finally:
            await lane.close()

    def _give_back(self, db: apsw.Connection, *, limit_seconds: float) -> Reclaimed:
        sql, before = queries("sqlite"), self._size()
        db.set_busy_timeout(round(limit_seconds * 1000))
        free, pages = db.execute(sql["free_pages"]).get
        note = self._written_anew(db, limit_seconds) if free > pages * _WORTH else ""
        busy, *_ = db.execute(sql["truncate_log"]).get
        if busy and not note:
            note = "other processes use the file now, so its log was not made smaller"
        return Reclaimed(max(before - self._size(), 0), note)

    def _written_anew(self, db: apsw.Connection, limit_seconds: float) -> str:
        """Have SQLite write the file without its free pages; why not, if it did not."""
        apsw = driver()
        until_ms = self._clock.elapsed_ms() + round(limit_seconds * 1000)
        db.set_progress_handler(lambda: self._clock.elapsed_ms() >= until_ms, _STEPS, id=_ID)
        try:
            db.execute(queries("sqlite")["vacuum"]).fetchall()
        except apsw.InterruptError:
            return f"{limit_seconds:g} s were not enough to write the file anew"
        except (apsw.BusyError, apsw.LockedError):
            return "another process writes to the file, so it was not written anew"
        except apsw.FullError:
            return "the disk is too full to write the file anew beside the old one"
        finally:
            db.set_progress_handler(None, id=_ID)
        return ""

    def _size(self) -> int:
        paths = (Path(self._file.path + suffix) for suffix in ("", "-wal"))
        return sum(path.stat().st_size for path in paths if path.exists())


class UpkeepMethods:
    """The methods of `ReclaimPort` and `MigrationPort` for a store that has an `Upkeep`."""

    _upkeep: Upkeep

    @property
    def can_reclaim(self) -> bool:
        """Always; see `ReclaimPort`."""
        return True

    async def reclaim(self, *, limit_seconds: float) -> Reclaimed:
        """Write the file without its free space, within the limit; see `ReclaimPort.reclaim`."""
        return await self._upkeep.reclaim(limit_seconds=limit_seconds)

    @property
    def can_migrate(self) -> bool:
        """Always; see `MigrationPort`."""
        return True

    async def migrations(self) -> list[Migration]:
        """The steps of the schema; see `MigrationPort.migrations`."""
        return self._upkeep.migrations()

    async def migrate(self) -> list[Migration]:
        """Bring the schema up; see `MigrationPort.migrate`."""
        return await self._upkeep.migrate()


def _by_itself(db: apsw.Connection, works: Sequence[Work], path: str) -> list[Outcome]:
    """Run operations that begin and end their own transactions."""
    outcomes: list[Outcome] = []
    for work in works:
        try:
            with driver_errors(path):
                outcomes.append(Outcome(work(db)))
        except StoreError:
            raise
        except Exception as exc:  # noqa: BLE001 (whoever awaits the operation gets it)
            outcomes.append(Outcome(error=exc))
    return outcomes
