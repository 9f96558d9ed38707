"""The Redis driver: loaded when first needed, and its errors turned into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from agentkit.core.contracts.errors import (
    MissingExtra,
    StoreError,
    StoreMisused,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from types import ModuleType

OLDEST_DRIVER = (5, 2)
"""Earlier versions of redis-py are not tried."""

PASSING = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "MOVED", "ASK", "BUSY")
"""Refusals that may be over in a moment, elsewhere or here."""

_KILLED = "Script killed by user"

_ADVICE = {
    "READONLY": "it is a replica, which takes no writes. Name its master, or the sentinels or the "
    "cluster that know who that is",
    "LOADING": "it is still loading its data. Try again when it has",
    "MASTERDOWN": "it is a replica that has lost its master. Try again when one has been promoted",
    "CLUSTERDOWN": "its cluster does not serve all slots. See `redis-cli --cluster check`",
    "TRYAGAIN": "the keys of the run are being moved to another node. Try again",
    "MOVED": "it belongs to a cluster, and another node has these keys. Use redis+cluster://",
    "ASK": "it belongs to a cluster, and another node has these keys. Use redis+cluster://",
    "CROSSSLOT": "it belongs to a cluster or a proxy that does not keep the keys of a run together",
    "MISCONF": "it cannot write its snapshots and so takes no writes. See its log and its disk",
    "NOREPLICAS": "fewer replicas follow it than min-replicas-to-write asks for. Bring them back",
    "BUSY": "it is running somebody's script that does not end. See SCRIPT KILL in its manual",
    _KILLED: "somebody ended our script with SCRIPT KILL. Nothing was written. Try again",
    "UNKILLABLE": "it is running somebody's script that does not end. See its manual",
}
_DENIED = {
    "NOAUTH": "it wants a password: redis://user:password@host",
    "WRONGPASS": "it does not accept this user and password",
    "NOPERM": "this user may not do that. Allow it the commands and keys that the page on Redis "
    "names",
}


@cache
def driver() -> ModuleType:
    """The `redis` module.

    Raises:
        MissingExtra: it is not installed, or too old.
    """
    try:
        import redis
    except ImportError as exc:
        raise MissingExtra(
            'a Redis store needs redis-py: pip install "arc-agentkit[redis]"'
        ) from exc
    version = tuple(int(part) for part in redis.__version__.split(".")[:2] if part.isdecimal())
    if version < OLDEST_DRIVER:
        raise MissingExtra(
            f"redis-py {redis.__version__} is too old for a Redis store: "
            f'pip install --upgrade "arc-agentkit[redis]"'
        )
    return redis


@contextmanager
def driver_errors(place: str) -> Iterator[None]:
    """Turn what the driver raises into `StoreUnreachable` or `StoreError`.

    Args:
        place: the store's location.
    """
    try:
        yield
    except driver().RedisError as exc:
        raise refused(exc, place) from exc
    except OSError as exc:
        raise _unreachable(exc, place) from exc


def code_of(error: Exception) -> str:
    """The word by which the server says what is wrong; empty where it is none that we know."""
    by_class = _by_class(error)
    if by_class:
        return by_class
    text = str(error)
    if _KILLED in text:
        return _KILLED
    known = (*_ADVICE, *_DENIED, "OOM", "WRONGTYPE", "NOSCRIPT")
    # Redis 6 puts what a command within a script was answered into a sentence of its own.
    found = (code for code in known if text.startswith(f"{code} ") or f"-{code} " in text)
    return next(found, "WRONGTYPE" if "WRONGTYPE " in text else "")


def refused(error: Exception, place: str) -> StoreError:
    """Our error for one of the driver, or for an answer that is an error."""
    code = code_of(error)
    if code in _ADVICE:
        return StoreUnreachable(f"the store {place} refused: {_ADVICE[code]} ({error}).")
    if code in _DENIED:
        return StoreUnreachable(f"the store {place} refused: {_DENIED[code]} ({error}).")
    if code == "OOM":
        return StoreUnreachable(
            f"the store {place} has no memory left (maxmemory). Nothing was written. Give it more, "
            f"or delete ended runs; do not let it evict keys, which loses runs."
        )
    if code == "WRONGTYPE":
        return StoreMisused(
            f"the store {place} has a key of another kind under a name of ours ({error}). Use "
            f"another prefix."
        )
    redis = driver()
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return _unreachable(error, place)
    return StoreError(f"the store {place} failed: {type(error).__name__}: {error}")


def _unreachable(error: Exception, place: str) -> StoreUnreachable:
    return StoreUnreachable(
        f"the store {place} cannot be reached ({error}). See that the server runs and that this "
        f"machine may connect to it, then resume."
    )


def _by_class(error: Exception) -> str:
    redis = driver()
    classes = {
        "MOVED": redis.exceptions.MovedError,
        "ASK": redis.exceptions.AskError,
        "TRYAGAIN": redis.exceptions.TryAgainError,
        "MASTERDOWN": redis.exceptions.MasterDownError,
        "CLUSTERDOWN": redis.exceptions.ClusterDownError,
        "LOADING": redis.exceptions.BusyLoadingError,
        "READONLY": redis.exceptions.ReadOnlyError,
        "OOM": redis.exceptions.OutOfMemoryError,
        "NOSCRIPT": redis.exceptions.NoScriptError,
        "NOPERM": redis.exceptions.NoPermissionError,
        "NOAUTH": redis.exceptions.AuthenticationError,
    }
    # A moved key is a kind of ASK to the driver, so that the order matters.
    return next((code for code, kind in classes.items() if isinstance(error, kind)), "")
