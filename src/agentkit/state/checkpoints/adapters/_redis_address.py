"""Where a Redis store is: URLs and clients of the user, made into connections of our own."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from agentkit.core.contracts.errors import InvalidStoreUrl, StoreMisused
from agentkit.state.checkpoints.adapters._redis_errors import driver
from agentkit.state.checkpoints.adapters._redis_options import check_url_options

if TYPE_CHECKING:
    import redis

    Client: TypeAlias = "redis.Redis | redis.RedisCluster"

Kind: TypeAlias = Literal["single", "sentinel", "cluster"]
Place: TypeAlias = tuple[str, int]
Settings: TypeAlias = Mapping[str, object]

SCHEMES: dict[str, tuple[Kind, str]] = {
    "redis": ("single", "redis"),
    "rediss": ("single", "rediss"),
    "redis+unix": ("single", "unix"),
    "redis+cluster": ("cluster", "redis"),
    "rediss+cluster": ("cluster", "rediss"),
    "redis+sentinel": ("sentinel", "redis"),
    "rediss+sentinel": ("sentinel", "rediss"),
}
"""Schemes of store URLs: how many servers there are, and the driver's own scheme."""

_ESCAPE = (
    "it is not a URL; in a user or password write %23 for #, %2F for /, %3A for :, %3F for ?, %40 "
    "for @, %5B and %5D for brackets"
)
_PORTS = {"single": 6379, "cluster": 6379, "sentinel": 26379}
_KEEPALIVE_SECONDS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_NOT_OURS = frozenset(
    {"retry", "retry_on_error", "retry_on_timeout", "decode_responses", "connection_pool"}
    | {"protocol", "event_dispatcher", "cache", "cache_config", "redis_connect_func"}
    | {"maint_notifications_config", "maint_notifications_pool_handler"}
)
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")


class Wire(Protocol):
    """What we use of a connection of redis-py, which is only half typed itself."""

    def connect(self) -> None:
        """Open it."""

    def disconnect(self) -> None:
        """Close it."""

    def send_packed_command(
        self,
        command: Sequence[bytes | memoryview],
        check_health: bool,  # noqa: FBT001 (theirs)
    ) -> None:
        """Send encoded commands, in parts that each have their time."""

    def read_response(self, disable_decoding: bool) -> object:  # noqa: FBT001 (theirs)
        """The next reply; one that is an error is raised."""


class Address(NamedTuple):
    """One or several servers, and what a connection to each is made with.

    Args:
        kind: a server that we are told, or the one that sentinels name, or a cluster.
        places: hosts and ports to ask first; empty for a socket in the file system.
        settings: keyword arguments of a connection, with `connection_class`.
        service: what the sentinels call the master.
        sentinel: keyword arguments for connections to sentinels.
    """

    kind: Kind
    places: tuple[Place, ...]
    settings: Settings
    service: str = ""
    sentinel: Settings = MappingProxyType({})

    @property
    def name(self) -> str:
        """A URL without user, password and options: equal for the same servers."""
        if self.kind == "single" and not self.places:
            return f"redis+unix://{quote(str(self.settings['path']))}?db={self.db}"
        hosts = ",".join(f"{_bracketed(host)}:{port}" for host, port in sorted(self.places))
        scheme = {"single": "redis", "sentinel": "redis+sentinel", "cluster": "redis+cluster"}
        end = {"single": f"/{self.db}", "sentinel": f"/{quote(self.service)}/{self.db}"}
        return f"{scheme[self.kind]}://{hosts}{end.get(self.kind, '')}"

    @property
    def db(self) -> int:
        """The number of the database."""
        return int(str(self.settings.get("db") or 0))

    def connection(self, place: Place | None, *, timeout_seconds: float) -> Wire:
        """A connection to one of the servers, not yet open. It never tries anything again."""
        settings = {key: value for key, value in self.settings.items() if key not in _NOT_OURS}
        make = settings.pop("connection_class", None) or driver().connection.Connection
        if place is not None:
            settings |= {"host": place[0], "port": place[1], "socket_keepalive": True}
            settings["socket_keepalive_options"] = {
                getattr(socket, name): seconds
                for name, seconds in _KEEPALIVE_SECONDS.items()
                if hasattr(socket, name)
            }
        settings |= _bounded(timeout_seconds)
        try:
            made: Wire = make(**settings)  # type: ignore[operator]  # a class
        except TypeError as exc:
            raise StoreMisused(f"a connection to {self.name} cannot be made: {exc}") from exc
        return made

    def master(self, *, timeout_seconds: float) -> Place | None:
        """The server to talk to, as the sentinels say where there are any.

        Raises:
            redis.ConnectionError: no sentinel answers, or none knows the master.
        """
        if self.kind != "sentinel":
            return self.places[0] if self.places else None
        sentinels = driver().sentinel.Sentinel(
            self.places,
            sentinel_kwargs={
                **{key: value for key, value in self.sentinel.items() if key not in _NOT_OURS},
                **_bounded(timeout_seconds),
                "retry": driver().retry.Retry(driver().backoff.NoBackoff(), 0),
            },
        )
        try:
            host, port = sentinels.discover_master(self.service)
        finally:
            for client in sentinels.sentinels:
                client.close()
        return _text(host), int(port)


def address_of(where: str | Client) -> Address:
    """The address in a URL or in a client of the user.

    Raises:
        InvalidStoreUrl: the URL is malformed.
        StoreMisused: it is no client that a store can take its settings from.
    """
    if isinstance(where, str):
        return _of_url(where)
    redis = driver()
    if isinstance(where, redis.RedisCluster):
        return _of_cluster(where)
    if isinstance(where, redis.Redis):
        return _of_client(where)
    kind = f"{type(where).__module__}.{type(where).__name__}"
    if kind.startswith("redis.asyncio"):
        raise StoreMisused(
            f"a {kind} is bound to one event loop, and a store serves several. Give the store a "
            f"URL or a redis.Redis with the same settings; it does not block the event loop."
        )
    raise StoreMisused(f"a Redis store takes a URL, a redis.Redis or a RedisCluster, not a {kind}")


def _of_url(url: str) -> Address:
    parts = _split(url)
    if parts.scheme not in SCHEMES:
        raise InvalidStoreUrl(
            f"a Redis store takes a URL that begins with one of {', '.join(SCHEMES)}"
        )
    kind, scheme = SCHEMES[parts.scheme]
    user, _, hosts = parts.netloc.rpartition("@")
    places = [] if scheme == "unix" else _places(hosts, kind)
    options = dict(parse_qsl(parts.query))
    sentinel: dict[str, object] = {
        key[9:]: options.pop(key) for key in _SENTINEL_OPTIONS if key in options
    }
    check_url_options(options, kind=scheme)
    path, service = parts.path, ""
    if kind == "sentinel":
        name, _, number = path.strip("/").partition("/")
        service, path = unquote(name), f"/{number}"
        if not service:
            raise InvalidStoreUrl(
                "a redis+sentinel URL names the master: redis+sentinel://host:26379/mymaster"
            )
    settings = _parsed(f"{scheme}://{user}@localhost{path}?{urlencode(options)}")
    if kind == "cluster" and (settings.pop("db", 0) or path.strip("/")):
        raise InvalidStoreUrl("a Redis Cluster has no databases; leave the number out of the URL")
    if kind == "sentinel" and scheme == "rediss":
        sentinel["ssl"] = True
    return Address(kind, tuple(places), settings, service, sentinel)


def _split(url: str) -> SplitResult:
    """The parts of a URL in which each character can only mean one thing.

    A password with an unescaped `/`, `?`, `#` or `@` would be cut in two, and what is behind it be
    taken for a host, which is shown in messages and connected to.
    """
    try:
        url.encode()
        parts = urlsplit(url)
    except ValueError:  # not shown: it may hold a password
        raise InvalidStoreUrl(_ESCAPE) from None
    if "#" in url or "@" in parts.query or ("@" in parts.path and "unix" not in parts.scheme):
        raise InvalidStoreUrl(_ESCAPE)
    return parts


def _parsed(url: str) -> dict[str, object]:
    try:
        settings: dict[str, object] = driver().connection.parse_url(url)
    except ValueError as exc:
        raise InvalidStoreUrl(f"an option is wrong ({exc})") from None
    path = urlsplit(url).path.strip("/")
    if not url.startswith("unix") and path and not path.isdecimal():
        raise InvalidStoreUrl("what stands behind the host is not the number of a database")
    return {key: value for key, value in settings.items() if key not in {"host", "port"}}


def _places(hosts: str, kind: Kind) -> list[Place]:
    found = []
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            found.append((parts.hostname or "localhost", parts.port or _PORTS[kind]))
        except ValueError:  # not shown: it may hold a password that is out of place
            raise InvalidStoreUrl("it does not name a host and a port") from None
    if kind == "single" and len(found) > 1:
        raise InvalidStoreUrl(
            "several hosts are a cluster or sentinels: redis+cluster:// or redis+sentinel://"
        )
    return found


def _of_client(client: redis.Redis) -> Address:
    pool = client.connection_pool
    settings = {**pool.connection_kwargs, "connection_class": pool.connection_class}
    if isinstance(pool, driver().sentinel.SentinelConnectionPool):
        tls = issubclass(pool.connection_class, driver().connection.SSLConnection)
        settings["connection_class"] = driver().connection.SSLConnection if tls else None
        sentinels: Sequence[redis.Redis] = pool.sentinel_manager.sentinels
        places = [_place(one.connection_pool.connection_kwargs) for one in sentinels]
        return Address(
            "sentinel",
            tuple(places),
            settings,
            _text(pool.service_name),
            dict(pool.sentinel_manager.sentinel_kwargs),
        )
    if "path" in settings:
        return Address("single", (), settings)
    return Address("single", (_place(settings),), settings)


def _of_cluster(client: redis.RedisCluster) -> Address:
    nodes = client.nodes_manager
    settings = dict(nodes.connection_kwargs)
    if settings.pop("ssl", False):
        settings["connection_class"] = driver().connection.SSLConnection
    places = [(str(node.host), int(node.port)) for node in nodes.startup_nodes.values()]
    settings.pop("db", None)
    return Address("cluster", tuple(places), settings)


def _place(settings: Settings) -> Place:
    return str(settings.get("host") or "localhost"), int(str(settings.get("port") or 6379))


def _bounded(timeout_seconds: float) -> dict[str, object]:
    return {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": 0,
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
