"""Lists of runs on Postgres."""

from __future__ import annotations

from collections.abc import Collection

from agentkit.core.contracts.heads import Claimable, RunStatus, RunSummary
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._postgres_clock import ServerClock
from agentkit.state.checkpoints.adapters._postgres_heads import head_of, identity_of, is_text
from agentkit.state.checkpoints.adapters._postgres_limits import Limit
from agentkit.state.checkpoints.adapters._postgres_place import Place
from agentkit.state.checkpoints.adapters._postgres_session import Db
from agentkit.state.checkpoints.adapters._queries import queries


class PostgresLists:
    """What looks at many runs at once. Every method takes the connection first.

    Args:
        place: where the tables are.
        clock: what leases are judged by, and runs are due by.
        limit: how long an operation may take.
    """

    def __init__(self, place: Place, clock: ServerClock, limit: Limit) -> None:
        self._clock = clock
        self._limit = limit
        self._sql = {name: place.sql(text) for name, text in queries("postgres").items()}

    def page(
        self,
        db: Db,
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
        if not all(is_text(given) for given in (status, agent, behind_run) if given is not None):
            return [], ""  # no run can have been kept under it
        values = {
            "tenancy": identity_of(scope),
            "scope": scope,
            "status": status,
            "agent": agent,
            "limit": size + 1,
            "behind_at": behind_at,
            "behind_run": behind_run,
            "at_ms": self._clock.at_ms(),
        }
        heads = [head_of(row) for row in self._limit.execute(db, self._sql["page"], values)]
        page = [
            RunSummary(head.run, head.summary, head.seq, head.epoch, head.owner, head.held)
            for head in heads[:size]
            if head.summary is not None
        ]
        if not page or len(heads) <= size:
            return page, ""
        return page, rules.to_cursor(page[-1].summary.started_at, page[-1].run)

    def claimable(self, db: Db, *, agents: Collection[str] | None, limit: int) -> list[Claimable]:
        """See `JournalPort.claimable`."""
        values = {
            "agents": None if agents is None else [name for name in agents if is_text(name)],
            "limit": max(limit, 0),
            "at_ms": self._clock.at_ms(),
            "wall_ms": self._clock.wall_ms(),
        }
        return [Claimable(*row) for row in self._limit.execute(db, self._sql["due"], values)]

    def scopes(self, db: Db, *, after: str | None, limit: int) -> list[str]:
        """See `JournalPort.scopes`."""
        if after is not None and not is_text(after):
            after = after.encode("utf-8", "ignore").decode().partition("\0")[0]
        values = {"after": after, "limit": max(limit, 0)}
        return [scope for (scope,) in self._limit.execute(db, self._sql["scopes"], values)]
