"""What a Redis store may be set to, by arguments or by options of a URL; checked beforehand."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from agentkit.core.contracts.errors import InvalidStoreUrl, StoreMisused
from agentkit.core.contracts.slots import check_id
from agentkit.state.checkpoints.adapters._redis_errors import driver

LONGEST_SECONDS = 100 * 365 * 86_400.0
"""Longest lifetime; the scripts refuse more before they write."""

SHORTEST_SECONDS = 0.001
"""Shortest lifetime: that is what Redis counts in."""

LONGEST_WAIT_SECONDS = 86_400.0
"""Longest time that a server may be waited for."""


class Lifetimes(NamedTuple):
    """For how long keys stay, in seconds; `None` is for ever.

    Args:
        log: the entries of an ended run.
        head: the head of an ended run, and what is remembered of a deleted one.
        orphan: the entries of an unfinished run that nobody has written to or held.
    """

    log: float | None
    head: float | None
    orphan: float | None

    @property
    def words(self) -> tuple[int, ...]:
        """In ms, as the scripts take them."""
        return tuple(round((seconds or 0) * 1000) for seconds in self)


class Patience(NamedTuple):
    """How long a connection or an answer may take, and how long an operation tries again."""

    timeout_seconds: float
    patience_seconds: float


def check_prefix(prefix: str) -> None:
    """Return if all keys may begin with `prefix`.

    Raises:
        InvalidId: it is empty, too long or holds control characters.
        StoreMisused: it holds a brace, which would decide about the slots of a cluster, or a colon,
            by which keys of one store could be those of another one.
    """
    check_id(prefix, what="prefix")
    if re.search("[:{}]", prefix):
        raise StoreMisused(
            f"the prefix {prefix!r} holds a brace or a colon; with those the keys of two stores "
            f"could be the same, or all in one slot. Use a dot or a dash"
        )


def lifetimes_of(
    *, log_ttl: float | None, head_ttl: float | None, orphan_ttl: float | None
) -> Lifetimes:
    """The lifetimes, checked.

    Raises:
        StoreMisused: one is not positive or too long, or a head would go before its entries.
    """
    for name, seconds in (("log", log_ttl), ("head", head_ttl), ("orphan", orphan_ttl)):
        if seconds is not None and not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
            raise StoreMisused(
                f"{name}_ttl_seconds must be positive and at most {LONGEST_SECONDS:.0f}, or None, "
                f"not {seconds!r}"
            )
        if name != "head" and head_ttl is not None and (seconds or 0.0) >= head_ttl:
            raise StoreMisused(
                f"{name}_ttl_seconds ({seconds:g}) must be less than head_ttl_seconds "
                f"({head_ttl:g}): the head tells that the entries are gone"
            )
    if head_ttl is not None and log_ttl is None:
        raise StoreMisused("log_ttl_seconds cannot be None where head_ttl_seconds is not")
    return Lifetimes(log_ttl, head_ttl, orphan_ttl)


def patience_of(*, timeout_seconds: float, patience_seconds: float) -> Patience:
    """How long to wait, checked.

    Raises:
        StoreMisused: one is too short, too long or no number.
    """
    if not 0 < timeout_seconds <= LONGEST_WAIT_SECONDS:
        raise StoreMisused(
            f"timeout_seconds must be more than 0 and at most {LONGEST_WAIT_SECONDS:.0f}, not "
            f"{timeout_seconds!r}"
        )
    if not 0 <= patience_seconds <= LONGEST_WAIT_SECONDS:
        raise StoreMisused(
            f"patience_seconds must be from 0 to {LONGEST_WAIT_SECONDS:.0f}, not "
            f"{patience_seconds!r}"
        )
    return Patience(timeout_seconds, patience_seconds)


def taken_apart(url: str) -> tuple[str, Mapping[str, object]]:
    """The URL without the options that are arguments of a store, and those.

    Raises:
        InvalidStoreUrl: one has no such value.
    """
    address, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    ours: dict[str, object] = {}
    for name, text in options:
        if name in _OPTIONS:
            try:
                ours[name] = _OPTIONS[name](text)
            except (KeyError, ValueError):
                raise InvalidStoreUrl(f"the option {name} cannot have this value") from None
    others = urlencode([(name, text) for name, text in options if name not in _OPTIONS])
    return f"{address}?{others}" if others else address, ours


def check_url_options(options: Mapping[str, str], *, kind: str) -> None:
    """Return if a connection of that kind (`redis`, `rediss`, `unix`) takes these options of a URL.

    Raises:
        InvalidStoreUrl: it does not take one, which is named if it looks like a name.
    """
    takes = _taken_by(kind)
    for name in options:
        if name in _OPTIONS:
            raise InvalidStoreUrl(
                f"{name} is an argument here: RedisCheckpointStore(url, {name}=…). In a URL it is "
                f"for open_store, --store and AGENTKIT_STORE_URL"
            )
        if name not in takes:
            shown = f"the option {name}" if re.fullmatch("[a-z_]{1,40}", name) else "an option"
            raise InvalidStoreUrl(
                f"{shown} is not known. Those of the store are {', '.join(_OPTIONS)}; others are "
                f"arguments of a connection of redis-py"
            )


def _taken_by(kind: str) -> set[str]:
    connection = driver().connection
    classes = {
        "redis": (connection.Connection,),
        "rediss": (connection.SSLConnection, connection.Connection),
        "unix": (connection.UnixDomainSocketConnection,),
    }[kind]
    found: set[str] = set()
    for one in (*classes, connection.AbstractConnection):
        found |= inspect.signature(one.__init__).parameters.keys()
    return found - {"self", "host", "port", "path", "args", "kwargs"}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError(text)
    return seconds


def _seconds_or_none(text: str) -> float | None:
    return None if text == "none" else _seconds(text)


_OPTIONS: dict[str, Callable[[str], object]] = {
    "prefix": str,
    "on_failover": str,
    "strict": {"1": True, "true": True, "0": False, "false": False}.__getitem__,
    "log_ttl_seconds": _seconds_or_none,
    "head_ttl_seconds": _seconds_or_none,
    "orphan_ttl_seconds": _seconds_or_none,
    "timeout_seconds": _seconds,
    "patience_seconds": _seconds,
}
