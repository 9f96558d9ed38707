"""What the transactions of tools need of a SQL store: its database, and a guard for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from agentkit.core.contracts.errors import TransactionOver
from agentkit.core.contracts.heads import Head, Lease
from agentkit.core.contracts.transactions import Proposal, SqlParameters, SqlValue
from agentkit.state.checkpoints.adapters._lanes import Connector

C = TypeVar("C")


class Place(NamedTuple):
    """Where the append of a transaction belongs."""

    scope: str
    run: str
    after: int
    lease: Lease


class Guard(Protocol):
    """Stands in front of a connection while a tool uses it."""

    def execute(self, sql: str, parameters: SqlParameters) -> list[tuple[SqlValue, ...]]:
        """See `Transaction.execute`."""
        ...

    def executemany(self, sql: str, rows: list[SqlParameters]) -> None:
        """See `Transaction.executemany`."""
        ...

    def check(self) -> None:
        """Return if the transaction is still the one that was begun, and in time.

        Raises:
            StoreError: the store has failed in it.
            TransactionOver: it has ended.
        """
        ...

    def interrupt(self) -> None:
        """From any thread, without waiting: end the statement that runs now."""
        ...

    def remove(self) -> None:
        """The tool has returned: from now on statements are ours.

        Raises:
            StoreError, TransactionOver: as `check`.
        """
        ...

    def roll_back(self) -> bool:
        """Forget what is open; whether the connection can be used again."""
        ...


class Database(Protocol[C]):
    """A store's database, as far as these transactions need it.

    Attributes:
        name: for messages.
        busy_seconds: how long one may have to wait for others before a transaction begins.
        keeps: whether a connection is kept for the next transaction.
    """

    name: str
    busy_seconds: float
    keeps: bool

    def connector(self) -> Connector[C]:
        """How a seat comes to a connection."""
        ...

    def begin(self, db: C, place: Place, limit_seconds: float) -> Head | None:
        """Begin a transaction in which nobody else appends to the run; its head.

        Raises:
            StoreError, RunError: there is none; nothing is open.
        """
        ...

    def leave(self, db: C) -> None:
        """Roll back a transaction that no tool has seen."""
        ...

    def guard(
        self, db: C, out_of_time: Callable[[], bool], over: Callable[[], TransactionOver]
    ) -> Guard:
        """Put a guard in front of the transaction that was just begun.

        Args:
            db: its connection.
            out_of_time: whether the tool's time is up.
            over: what is raised then.
        """
        ...

    def commit(self, db: C, place: Place, proposal: Proposal) -> None:
        """Append and commit."""
        ...
