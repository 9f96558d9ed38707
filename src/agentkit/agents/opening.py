"""A store URL where a store is expected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from agentkit.core.contracts.errors import InvalidSpec, StoreUnreachable
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.places import is_missing

__all__ = ["takes_url"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def takes_url(
    function: Callable[Concatenate[JournalPort, _P], Awaitable[_T]],
) -> Callable[Concatenate[JournalPort | str, _P], Coroutine[object, object, _T]]:
    """Let a function of a store be given its URL instead. It is opened for this call, looks at the
    runs of no scope (for others give `open_store(url).scoped(…)`), and is closed after it.

    Raises: beside what the function raises
        InvalidSpec: it is given neither a store nor a URL.
        InvalidStoreUrl: the URL is malformed or unknown.
        StoreUnreachable: there is no store at the URL; none is made.
    """

    @wraps(function)
    async def opened(port: JournalPort | str, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if isinstance(port, str):
            return await _within(port, lambda store: function(store, *args, **kwargs))
        given: object = port
        if not isinstance(given, JournalPort):
            kind = type(port).__name__
            message = f"{function.__name__} takes a store or its URL, not a {kind}"
            raise InvalidSpec(f"{message}; write open_store(url)")
        return await function(port, *args, **kwargs)

    return opened


async def _within(url: str, work: Callable[[JournalPort], Awaitable[_T]]) -> _T:
    from agentkit.state.checkpoints.adapters import open_store

    store = open_store(url)
    try:
        if await is_missing(store):
            raise StoreUnreachable(f"there is no store at {store.location} yet")
        return await work(store)
    finally:
        await store.aclose()
