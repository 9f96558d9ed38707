"""Stores of other distributions, found by their entry points when a URL names one."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from agentkit.core.contracts.errors import AgentkitError, InvalidStoreUrl, StoreError
from agentkit.core.contracts.ports import JournalPort

GROUP = "agentkit.stores"
"""Entry points of this group have a URL's scheme as name, and give a callable that takes the URL
and returns a `JournalPort`.
"""


def plugin_store(scheme: str, url: str, *, shown: str) -> JournalPort | None:
    """The store that another distribution makes of `url`; `None` where none knows the scheme.

    Args:
        scheme: of the URL, in small letters.
        url: as it was given, with what is secret in it.
        shown: the same for messages.

    Raises:
        InvalidStoreUrl: several distributions offer this scheme.
        StoreError: the one that does cannot be loaded, fails, or makes something else.
    """
    found = [point for point in entry_points(group=GROUP) if point.name.lower() == scheme]
    if not found:
        return None
    if len({point.value for point in found}) > 1:
        raise InvalidStoreUrl(
            f"{shown!r}: several distributions offer a store for {scheme!r}: "
            f"{', '.join(sorted(map(_origin, found)))}. Uninstall all but one."
        )
    point = found[0]
    try:
        store: object = point.load()(url)
    except AgentkitError:
        raise
    except (Exception, SystemExit) as exc:
        # What it says is not shown: it may hold the URL with its password.
        raise StoreError(
            f"{shown!r}: the store of {_origin(point)} failed ({type(exc).__name__}); see the "
            f"error behind this one, and the documentation of that distribution"
        ) from exc
    if not isinstance(store, JournalPort):
        raise StoreError(
            f"{shown!r}: {_origin(point)} made a {type(store).__name__}, which is no JournalPort; "
            f"a store with five methods is given as ShimJournal.over(store)"
        )
    return store


def _origin(point: EntryPoint) -> str:
    name = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "somebody"
    return f"{name} ({point.value})"
