"""Lists of runs on a SQLite connection, inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from agentkit.core.contracts.errors import StoreDamaged
from agentkit.core.contracts.heads import Claimable, RunStatus, RunSummary
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._queries import queries
from agentkit.state.checkpoints.adapters._sqlite_heads import Readable, Value, head_damaged
from agentkit.state.checkpoints.adapters._sqlite_journal import SqliteJournal
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

if TYPE_CHECKING:
    import apsw


class SqliteLists:
    """What looks at many runs at once. Every method takes the connection first.

    Args:
        journal: reads heads.
        clock: what runs are due by.
    """

    def __init__(self, journal: SqliteJournal, clock: StoreClock) -> None:
        self._journal = journal
        self._clock = clock
        self._sql = queries("sqlite")

    def page(
        self,
        db: apsw.Connection,
        scope: str,
        *,
        status: RunStatus | None,
        agent: str | None,
        limit: int,
        behind: tuple[int, str] | None,
    ) -> tuple[list[RunSummary], str]:
        """See `JournalPort.list_runs`."""
        size = max(limit, 0)
        behind_at, behind_run = behind or (None, None)
        values: dict[str, Value] = {
            "scope": scope,
            "status": status,
            "agent": agent,
            "limit": size + 1,
            "behind_at": behind_at,
            "behind_run": behind_run,
        }
        self._check_list(db, scope)
        with Readable("a run in the list"):
            found = [(row[-1], row[:-1]) for row in db.execute(self._sql["page"], values)]
        heads = [self._journal.head_in(scope, run, row) for run, row in found]
        page = [
            RunSummary(head.run, head.summary, head.seq, head.epoch, head.owner, head.held)
            for head in heads[:size]
            if head.summary is not None
        ]
        if not page or len(heads) <= size:
            return page, ""
        return page, rules.to_cursor(page[-1].summary.started_at, page[-1].run)

    def claimable(
        self, db: apsw.Connection, *, agents: Collection[str] | None, limit: int
    ) -> list[Claimable]:
        """See `JournalPort.claimable`."""
        now_ms = self._clock.wall_ms()
        values: dict[str, Value] = {
            "now_ms": now_ms,
            "boot": self._clock.boot,
            "elapsed_ms": self._clock.elapsed_ms(),
            "agents": None if agents is None else msgspec.json.encode(sorted(agents)).decode(),
            "limit": max(limit, 0),
        }
        with Readable("a run in the list"):
            rows: list[Any] = db.execute(self._sql["due"], values).fetchall()
        due = []
        for *row, scope, run in rows:
            head = self._journal.head_in(scope, run, row)
            due.append(rules.claimable(scope, head, now_ms=now_ms))
        return [one for one in due if one is not None]

    def scopes(self, db: apsw.Connection, *, after: str | None, limit: int) -> list[str]:
        """See `JournalPort.scopes`."""
        values: dict[str, Value] = {"after": after, "limit": max(limit, 0)}
        with Readable("a run in the list"):
            return [scope for (scope,) in db.execute(self._sql["scopes"], values)]

    def _check_list(self, db: apsw.Connection, scope: str) -> None:
        with Readable("a run in the list"):
            *sums, misfiled = db.execute(self._sql["list_check"], {"scope": scope}).get
        if misfiled is not None:
            raise head_damaged(misfiled, "what lists go by is not what was written")
        if sums[:2] != sums[2:]:
            raise StoreDamaged(
                f"the list of runs is damaged: the table has {sums[0]} of this scope, its index "
                f"{sums[2]}, or others. Restore the store from a backup; runs are still found by "
                f"their ids, or an error says that they are not."
            )
