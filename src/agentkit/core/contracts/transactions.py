"""Transactional tools: the store's own database as the place where effect and outcome are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from agentkit.core.contracts.heads import Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort, ToolThreads

__all__ = [
    "Proposal",
    "SqlParameters",
    "SqlValue",
    "Transaction",
    "TransactionalPort",
    "can_transact",
]

_T = TypeVar("_T")

SqlValue: TypeAlias = int | float | str | bytes | None
"""What a column holds and what a parameter may be."""

SqlParameters: TypeAlias = Sequence[SqlValue] | Mapping[str, SqlValue]
"""In order, or by name: on SQLite for `?` and `:name`, on Postgres for `%s` and `%(name)s`, where a
`%` of one's own is written `%%` if there are parameters."""


class Transaction(Protocol):
    """The open transaction that a transactional tool works in, and with it its outcome.

    One statement at a time, values always as parameters. What would end the transaction
    (`COMMIT`, `ROLLBACK`, savepoints), reach outside of it (`ATTACH`, `PRAGMA`; `SET`, `COPY`,
    `LISTEN`, `DO`) or touch the tables of agentkit (`agentkit_*`) is refused. Tables of one's own
    may be created in it. Only the thread of the tool may use it, and only until the tool returns.
    A value of Postgres that is none of `SqlValue` (a numeric, a date, JSON) comes as its text.
    """

    def execute(self, sql: str, parameters: SqlParameters = ()) -> list[tuple[SqlValue, ...]]:
        """Run one statement and return all its rows.

        Raises:
            StatementRefused: it is not allowed, wrong, or violates a constraint. It did nothing;
                the tool may go on with another one.
            TransactionOver: the transaction has ended (its time is up, or the statement itself
                rolled it back). Whatever the tool makes of it, nothing of it happens.
            StoreError: the store failed. Let it pass: the run stops and is resumable.
        """
        ...

    def executemany(self, sql: str, rows: Iterable[SqlParameters]) -> None:
        """Run one statement for each of `rows`; raises like `execute`."""
        ...


class Proposal(msgspec.Struct, frozen=True):
    """What is appended in the transaction; as for `JournalPort.append`."""

    rows: tuple[Row, ...]
    summary: Summary
    release: bool = False


@runtime_checkable
class TransactionalPort(Protocol):
    """A store whose database also takes what tools write, in one transaction with their outcome."""

    @property
    def can_transact(self) -> bool:
        """Whether `transact` works here; a wrapper answers for the store it wraps."""
        ...

    async def transact(
        self,
        run: str,
        act: Callable[[Transaction], _T],
        conclude: Callable[[_T], Proposal | None],
        *,
        after: int,
        lease: Lease,
        threads: ToolThreads,
        timeout_seconds: float,
    ) -> bool:
        """Begin a transaction, `act` in it, append what `conclude` makes of that, and commit.

        Before `act` is called it is checked within the transaction that the head is at `after` and
        its owner and epoch are the lease's; nobody else can append anywhere in the store from then
        to the end. `act` and then `conclude` are called at most once, in a thread of `threads`.
        Where `conclude` gives `None`, everything is rolled back and the answer is False.

        `act` has `timeout_seconds`, and at most the store's own limit. After that the transaction
        is rolled back at once, also while `act` goes on, and `conclude` is not called. It neither
        is where the transaction has ended in any other way.

        Durable when it returns True: effects and rows are there together or not at all, whatever
        dies when. A cancelled caller gets its cancellation once it is settled: rolled back, or
        carried to its end where `conclude` was called.

        Raises:
            LeaseLost, HeadMoved: as for `append`; `act` was not called.
            EntryTooLarge: as for `append`; everything was rolled back.
            TransactionOver: see above; everything was rolled back.
            StoreError: the store failed. Where `conclude` was called, only reading tells whether
                the rows (and the effects) are there; else nothing happened.
        """
        ...


def can_transact(port: JournalPort) -> TransactionalPort | None:
    """The port as one for transactions; `None` where it has none."""
    return port if isinstance(port, TransactionalPort) and port.can_transact else None
