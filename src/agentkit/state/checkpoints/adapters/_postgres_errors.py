"""The Postgres driver: loaded when first needed, and its errors turned into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from agentkit.core.contracts.errors import (
    MissingExtra,
    RunLocked,
    StoreDamaged,
    StoreError,
    StoreMisused,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from types import ModuleType

    import psycopg

_LOCKED = "55P03"
_UNDONE = ("40001", "40P01")  # serialization failure, deadlock: rolled back, may be sent again
_CANCELLED = "57014"
_FORBIDDEN = "42501"
_MISSING = ("3F000", "42P01", "42883", "42704", "42703")
_READ_ONLY = "25006"
_UNSUPPORTED = "0A000"
_DAMAGED = ("XX001", "XX002")
_FOR_NOW = ("starting up", "shutting down", "not yet accepting", "in recovery", "too many clients")
_ALIVE = (_LOCKED, *_UNDONE, _CANCELLED)


class NoAnswer(Exception):
    """The server did not answer in time; it is not known what became of the statement."""


@cache
def driver() -> ModuleType:
    """The `psycopg` module.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import psycopg
    except ImportError as exc:
        raise MissingExtra(
            'PostgresCheckpointStore needs psycopg: pip install "arc-agentkit[postgres]"'
        ) from exc
    return psycopg


@contextmanager
def driver_errors(where: str) -> Iterator[None]:
    """Turn the driver's errors into ours.

    Args:
        where: the server and database, for messages; without a password.
    """
    psycopg = driver()
    try:
        yield
    except NoAnswer as exc:
        raise StoreUnreachable(
            f"the store {where} did not answer ({exc}). See whether the server and the network "
            f"are up, and resume."
        ) from exc
    except psycopg.Error as exc:
        raise _translate(exc, where) from exc


def is_lost(error: BaseException | None) -> bool:
    """Whether the connection is of no use after this error of the driver."""
    psycopg = driver()
    if isinstance(error, NoAnswer | psycopg.InterfaceError):
        return True
    if getattr(error, "sqlstate", None) == _READ_ONLY:
        return True  # another session may be with the server that takes writes now
    return isinstance(error, psycopg.OperationalError) and error.sqlstate not in _ALIVE


def is_passing(error: StoreError) -> bool:
    """Whether the connection of an operation broke, so that it may be sent again at once on another
    one if doing it twice is doing it once.
    """
    cause = error.__cause__
    return is_lost(cause) and not isinstance(cause, NoAnswer)


def is_undone(error: StoreError) -> bool:
    """Whether the server says that nothing was done, and may do it soon: it rolled the operation
    back to let another one pass, or takes no writes yet.
    """
    return getattr(error.__cause__, "sqlstate", None) in (*_UNDONE, _READ_ONLY)


def is_locked(error: StoreError) -> bool:
    """Whether somebody had locked a row for longer than was waited."""
    return getattr(error.__cause__, "sqlstate", None) == _LOCKED


def is_own(error: StoreError) -> bool:
    """Whether a statement that serves several operations failed by the fault of one of them."""
    psycopg = driver()
    cause = error.__cause__
    return getattr(cause, "sqlstate", None) in (_LOCKED, _CANCELLED) or isinstance(
        cause, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError
    )


def is_taken(error: StoreError) -> bool:
    """Whether an entry stood already where one was to be put."""
    return isinstance(error.__cause__, driver().errors.UniqueViolation)


def is_starting(error: psycopg.OperationalError, *, reached: bool) -> bool:
    """Whether a server may take connections soon: it says so, or it was reached before and nobody
    listens now.
    """
    text = str(error)
    if any(words in text for words in _FOR_NOW):
        return True
    silent = isinstance(error, driver().errors.ConnectionTimeout)  # it was waited for already
    return reached and not silent and "FATAL" not in text


def _translate(exc: psycopg.Error, where: str) -> StoreError:
    psycopg = driver()
    state, text = exc.sqlstate, " ".join(str(exc).split())
    if state == _FORBIDDEN:
        return StoreUnreachable(
            f"the store {where}: the role may not do this ({text}). Give it the rights that "
            f"`agentkit migrate --print` names, or use another role."
        )
    if state in _UNDONE:
        return StoreUnreachable(
            f"the store {where} has rolled this back each time, in favour of other sessions "
            f"({text}). Nothing was written. Try again when it has less to do."
        )
    if state == _READ_ONLY or (state == _UNSUPPORTED and "recovery" in text):
        return StoreUnreachable(
            f"the store {where} is read-only ({text}): it may be a standby. Connect to the "
            f"primary, for instance with target_session_attrs=read-write."
        )
    if state in _MISSING:
        return StoreUnreachable(
            f"the store {where} lacks what it should have ({text}). If its schema was removed in "
            f"use, restore it and resume; else run `agentkit migrate`."
        )
    if state in _DAMAGED:
        return StoreDamaged(f"the store {where} is damaged ({text}). Restore a backup.")
    if state == _LOCKED:
        return RunLocked(
            f"the store {where}: a run is locked by another session for longer than this one "
            f"waits ({text}). See pg_locks for who holds it, and try again."
        )
    if state == _CANCELLED:
        return StoreUnreachable(
            f"the store {where}: the server has cancelled this ({text}). Nothing was written. "
            f"Where role or database have a statement_timeout, let it be longer, and try again."
        )
    if type(exc).__module__.startswith("psycopg_pool"):
        return StoreUnreachable(
            f"the store {where}: its pool gave no connection ({text}). Let the pool be open and "
            f"have a connection free, then resume."
        )
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnreachable(
            f"the store {where} cannot be reached ({text or type(exc).__name__}). See whether the "
            f"server is up and address and credentials are right, then resume."
        )
    if isinstance(exc, psycopg.DataError):
        return StoreMisused(f"the store {where} cannot keep this value: {text}")
    return StoreError(f"the store {where} failed: {type(exc).__name__}: {text}")
