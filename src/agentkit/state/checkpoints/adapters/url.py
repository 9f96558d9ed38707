"""From a store URL to a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from urllib.parse import unquote

from agentkit.core.contracts.errors import InvalidStoreUrl
from agentkit.core.contracts.ports import JournalPort

__all__ = ["masked_url", "open_store"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_FILE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_USERINFO = re.compile(r"^((?:[A-Za-z][A-Za-z0-9+.-]*:/+)?[^:@]*:).*@", re.DOTALL)
_NO_PORT = re.compile(r"(://[^@/?#:]+:)(?!\d*(?:[/?#,]|$))[^@/?#]+")
_SECRET = re.compile(
    r"((?:pass|pwd|secret|token|key)[a-z_]*\s*=\s*)('[^']*'|[^&;#\s]*)", re.IGNORECASE
)
_KNOWN = (
    "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://host/database, "
    "redis://host, rediss://host, redis+sentinel://host/master, redis+cluster://host"
)


def open_store(url: str) -> JournalPort:
    """The store that `url` names. Nothing is opened or created until the store is used.

    Args:
        url: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db`, or the path of a file
            that ends in `.db`, `.sqlite` or `.sqlite3`. In a `sqlite` URL `%3F` stands for `?`, and
            so on for other reserved characters. `postgresql://user@host:5432/database` as libpq
            takes it, with `?schema=…` for the tables if they are not in `agentkit`.
            `redis://user:password@host:6379/0`, `rediss://…` with TLS,
            `redis+sentinel://host:26379,other:26379/mymaster`, `redis+cluster://host:7000`, with
            `?prefix=…` and other arguments of the store as options. Any other scheme is looked for
            among the entry points `agentkit.stores` of what is installed.

    Raises:
        InvalidStoreUrl: it is malformed, or there is no such store. Passwords in it are masked in
            the message.
        StoreError: the distribution whose store it is cannot make it.
    """
    given: object = url
    if not isinstance(given, str):
        raise InvalidStoreUrl(f"{url!r} is not a store URL but no text. Known ones: {_KNOWN}.")
    if not _is_text(url):
        raise InvalidStoreUrl("the store URL holds lone surrogates, so it is no text")
    match = _SCHEME.fullmatch(url)
    if match is None:
        if url.endswith(_FILE_SUFFIXES):
            return _file(url)
        raise InvalidStoreUrl(f"{masked_url(url)!r} is not a store URL. Known ones: {_KNOWN}.")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in _STORES:
        from agentkit.state.checkpoints.adapters._plugins import plugin_store

        store = plugin_store(scheme, url, shown=masked_url(url))
        if store is not None:
            return store
        raise InvalidStoreUrl(
            f"{masked_url(url)!r} names the store {scheme!r}, which is unknown. Known ones: "
            f"{_KNOWN}."
        )
    return _STORES[scheme](url, rest)


def masked_url(url: str) -> str:
    """The URL with `***` for what may be a password in it, for people to read."""
    return _SECRET.sub(r"\1***", _NO_PORT.sub(r"\1***", _USERINFO.sub(r"\1***@", url)))


def _memory(url: str, rest: str) -> JournalPort:
    from agentkit.state.checkpoints.adapters.memory import InMemoryCheckpointStore

    if rest not in {"", "/"}:
        raise InvalidStoreUrl(f"{masked_url(url)!r}: nothing can follow memory://")
    return InMemoryCheckpointStore()


def _sqlite(url: str, rest: str) -> JournalPort:
    if not rest.startswith("/"):
        raise InvalidStoreUrl(
            f"{masked_url(url)!r} has too few slashes: sqlite:///relative.db has three and "
            f"sqlite:////absolute.db has four"
        )
    if "?" in rest or "#" in rest:
        raise InvalidStoreUrl(
            f"{masked_url(url)!r}: a sqlite URL takes no options; write %3F and %23 for ? and # in "
            f"a file name"
        )
    return _file(unquote(rest[1:]))


def _file(path: str) -> JournalPort:
    from agentkit.state.checkpoints.adapters.sqlite import SqliteCheckpointStore

    return SqliteCheckpointStore(path)


def _postgres(url: str, rest: str) -> JournalPort:
    from agentkit.state.checkpoints.adapters.postgres import PostgresCheckpointStore

    address, _, options = rest.partition("?")
    given = [option for option in options.split("&") if option]
    schemas = [unquote(one.removeprefix("schema=")) for one in given if one.startswith("schema=")]
    others = "&".join(one for one in given if not one.startswith("schema="))
    if len(schemas) > 1:
        raise InvalidStoreUrl(f"{masked_url(url)!r} names more than one schema")
    _check_options(url, options, given)
    conninfo = f"postgresql://{address}" + (f"?{others}" if others else "")
    try:
        if not schemas:
            return PostgresCheckpointStore(conninfo)
        return PostgresCheckpointStore(conninfo, schema=schemas[0])
    except InvalidStoreUrl as refused:
        raise InvalidStoreUrl(f"{masked_url(url)!r}: {refused}") from None


def _check_options(url: str, options: str, given: Sequence[str]) -> None:
    """Refuse an option that is unknown by its name, which the driver's error would tell together
    with the rest of the address.
    """
    from agentkit.state.checkpoints.adapters._postgres_place import option_names

    if "@" in options:
        return  # a password that is not quoted may have been taken for options
    known = {"schema", *option_names()}
    for name in (one.partition("=")[0] for one in given):
        if name not in known:
            raise InvalidStoreUrl(
                f"{masked_url(url)!r} has the option {name!r}, which is unknown. It takes schema=… "
                f"and what libpq takes: connect_timeout, sslmode, target_session_attrs and so on."
            )


def _redis(url: str, rest: str) -> JournalPort:  # noqa: ARG001 (they share a signature)
    from agentkit.state.checkpoints.adapters.redis import store_of_url

    try:
        return store_of_url(url)
    except InvalidStoreUrl as refused:
        raise InvalidStoreUrl(f"{masked_url(url)!r}: {refused}") from None


def _is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


_STORES: dict[str, Callable[[str, str], JournalPort]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    **dict.fromkeys(
        (
            f"{scheme}{kind}"
            for scheme in ("redis", "rediss")
            for kind in ("", "+sentinel", "+cluster")
        ),
        _redis,
    ),
    "redis+unix": _redis,
}
