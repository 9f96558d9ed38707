"""What the tests of the Postgres store share."""

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from agentkit.core.contracts.heads import Lease
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.testing.servers import PostgresServer
from tests.state.stores.helpers import started

_numbers = itertools.count(1)


class Desk:
    """A store in a schema of its own, and beside it what another program would see."""

    def __init__(self, dsn: str, **options: object) -> None:
        self.dsn = dsn
        self.schema = f"desk{next(_numbers)}"
        self.options = options

    def store(self, dsn: str = "", **options: object) -> PostgresCheckpointStore:
        """One more object on the same data."""
        return PostgresCheckpointStore(
            dsn or self.dsn,
            schema=self.schema,
            **{**self.options, **options},  # type: ignore[arg-type] # from a table
        )

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run a statement as another program, `{s}` standing for the schema."""
        with psycopg.connect(self.dsn, autocommit=True) as db:
            cursor = db.execute(statement.replace("{s}", self.schema).encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def desk(postgres_server: PostgresServer) -> Iterator[Desk]:
    """A new schema on the shared server."""
    made = Desk(postgres_server.dsn())
    yield made
    made.sql("DROP SCHEMA IF EXISTS {s} CASCADE")


async def begun(store: PostgresCheckpointStore, run: str = "r") -> Lease:
    """A run with one entry."""
    return await started(store, run)
