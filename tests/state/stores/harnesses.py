"""How the conformance kit comes to each of our stores: one place, one line for each name."""

import itertools
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from agentkit.core.contracts.ports import CheckpointPort, ClockPort, JournalPort
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    PostgresCheckpointStore,
    RedisCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.testing import FaultyStore
from agentkit.testing.conformance import Capability, ClockKind, Harness
from agentkit.testing.servers import PgBouncer, PostgresServer, RedisCluster, RedisServer

T = TypeVar("T")

_IN_MEMORY = next((path for path in ("/dev/shm",) if Path(path).is_dir()), None)
"""A disk that needs no waiting for: what survives a loss of power is tested apart."""

_numbers = itertools.count(1)


class MemoryHarness(Harness):
    """A memory store is an object: there is no second handle on it."""

    name = "memory"
    clock: ClockKind = "held"
    lacks: Mapping[Capability, str] = {"handles": "another object is another store"}

    async def new_place(self) -> str:
        """Any; each object is its own."""
        return "memory://"

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """A new object."""
        return InMemoryCheckpointStore(clock=clock)


class SqliteHarness(Harness):
    """A file in a folder of its own for each place."""

    name = "sqlite"
    clock = "held"
    opener = "agentkit.state.checkpoints.adapters:open_store"

    def __init__(self) -> None:
        self._folders: dict[str, tempfile.TemporaryDirectory[str]] = {}

    async def new_place(self) -> str:
        """A file that does not exist yet."""
        folder = tempfile.TemporaryDirectory(prefix="conformance-", dir=_IN_MEMORY)
        place = f"sqlite:///{Path(folder.name) / 'runs.db'}"
        self._folders[place] = folder
        return place

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """A new object on the file."""
        return SqliteCheckpointStore(place.removeprefix("sqlite:///"), clock=clock)

    async def remove(self, place: str) -> None:
        """Remove the folder."""
        self._folders.pop(place).cleanup()


class PostgresHarness(Harness):
    """A schema of its own for each place; the server takes any password."""

    clock = "held"
    opener = "agentkit.state.checkpoints.adapters:open_store"
    lacks: Mapping[Capability, str] = {"elapsed": "a server has its wall clock alone"}
    secrets = ("hunter2",)
    parameters = "format"

    def __init__(self, server: PostgresServer | PgBouncer) -> None:
        self.name = type(server).__name__
        self._address = server.dsn().replace("postgres@", "postgres:hunter2@")

    async def new_place(self) -> str:
        """A schema that does not exist yet."""
        return f"{self._address}?schema=conformance {next(_numbers)}"

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """A new object on the schema."""
        address, _, schema = place.partition("?schema=")
        given = clock if isinstance(clock, FakeClock) else None
        return PostgresCheckpointStore(address, schema=schema, clock=given)


class RedisHarness(Harness):
    """A prefix of its own for each place; the default user has any password."""

    clock = "held"
    opener = "agentkit.state.checkpoints.adapters:open_store"
    lacks: Mapping[Capability, str] = {"elapsed": "a server has its wall clock alone"}
    secrets = ("hunter2",)

    def __init__(self, server: RedisServer | RedisCluster) -> None:
        self.name = type(server).__name__
        self._url = server.url.replace("://", "://default:hunter2@")

    async def new_place(self) -> str:
        """A prefix that no key has yet."""
        return f"{self._url}?prefix=conformance{next(_numbers)}"

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """A new object on the keys with the prefix."""
        url, _, prefix = place.partition("?prefix=")
        given = clock if isinstance(clock, FakeClock) else None
        return RedisCheckpointStore(url, prefix=prefix, clock=given)

    def open_expiring(self, place: str, *, seconds: float) -> JournalPort:
        """One whose ended runs go after a while, by the server's own clock."""
        url, _, prefix = place.partition("?prefix=")
        return RedisCheckpointStore(url, prefix=prefix, log_ttl_seconds=seconds)


class WrappedHarness(Harness):
    """The stores of another harness, each within a wrapper."""

    def __init__(self, inner: Harness, wrap: Callable[[JournalPort], JournalPort]) -> None:
        self._inner = inner
        self._wrap = wrap
        self.name = f"{inner.name} in a {getattr(wrap, '__name__', 'wrapper')}"
        self.clock = inner.clock
        self.opener = inner.opener
        self.lacks = inner.lacks
        self.secrets = inner.secrets
        self.parameters = inner.parameters

    async def new_place(self) -> str:
        """As the inner one."""
        return await self._inner.new_place()

    def open(self, place: str, clock: ClockPort) -> CheckpointPort:
        """Wrapped."""
        opened = self._inner.open(place, clock)
        assert isinstance(opened, JournalPort)
        return self._wrap(opened)

    async def remove(self, place: str) -> None:
        """As the inner one."""
        await self._inner.remove(place)


class Known(NamedTuple):
    """A store by name: what makes its harness, which server it needs, and what it does not offer.

    `make` is called with something that gives the fixture of a name.
    """

    make: Callable[[Callable[[str], object]], Harness]
    lacks: Collection[Capability]
    mark: str = ""


def _server(kind: type[T], given: object) -> T:
    assert isinstance(given, kind)
    return given


KNOWN: dict[str, Known] = {
    "memory": Known(
        lambda _: MemoryHarness(), {"handles", "processes", "fork", "expiry", "transactions"}
    ),
    "sqlite": Known(lambda _: SqliteHarness(), {"expiry"}),
    "postgres": Known(
        lambda get: PostgresHarness(_server(PostgresServer, get("postgres_server"))),
        {"elapsed", "expiry"},
        "postgres",
    ),
    "pgbouncer": Known(
        lambda get: PostgresHarness(_server(PgBouncer, get("pgbouncer_server"))),
        {"elapsed", "expiry"},
        "pgbouncer",
    ),
    "redis": Known(
        lambda get: RedisHarness(_server(RedisServer, get("redis_server"))),
        {"elapsed", "transactions"},
        "redis",
    ),
    "redis_cluster": Known(
        lambda get: RedisHarness(_server(RedisCluster, get("redis_cluster"))),
        {"elapsed", "transactions"},
        "redis",
    ),
}
"""The stores that keep all promises, and what some of them do not offer."""

WRAPPERS: dict[str, Callable[[JournalPort], JournalPort]] = {
    "StoreWrapper": StoreWrapper,
    "FaultyStore": FaultyStore,
}
"""What must change nothing when it is put around a store."""
