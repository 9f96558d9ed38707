"""Where a Postgres store is: its address without secrets, and how its connections are set up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from agentkit.core.contracts.errors import InvalidStoreUrl
from agentkit.state.checkpoints.adapters._postgres_errors import driver

DEFAULT_SCHEMA = "agentkit"

CONNECT_SECONDS = 10
"""How long a connection is tried for; after the first one also how long a restart is waited for."""

KEEPALIVE_SECONDS = (10, 5, 3)
"""When a silent connection is probed first, how often then, and how many probes may be lost."""

UNACKNOWLEDGED_SECONDS = 15
"""How long sent bytes may stay unacknowledged before the connection is given up (Linux)."""

_MAX_SCHEMA_BYTES = 63
_NOT_IN_SCHEMA = ("%", "$$", "{", "}")
"""What would mean something else in a statement or in the text of a function."""

_ENCODING = "UTF8"
_LOCAL = "localhost"
_PORT = "5432"


class Place(NamedTuple):
    """A database and the schema in it.

    Args:
        location: URL without user and password.
        parameters: for the driver, secrets included.
        schema: as it is written in SQL, quoted.
        name: of the schema.
    """

    location: str
    parameters: Mapping[str, str]
    schema: str
    name: str

    def __repr__(self) -> str:
        return f"Place({self.location!r})"

    def sql(self, statement: str) -> str:
        """The statement with its names in this schema."""
        return statement.replace("{schema}", self.schema)


def place_of(conninfo: str, schema: str, **given: object) -> Place:
    """The place that a connection string or URL names.

    Args:
        conninfo: as libpq takes it.
        schema: of the tables.
        given: more parameters, which win.

    Raises:
        InvalidStoreUrl: it is not understood, or the schema has an impossible name.
    """
    psycopg = driver()
    _check_schema(schema)
    try:
        found = psycopg.conninfo.conninfo_to_dict(conninfo, **given)
    except psycopg.Error:
        # The driver quotes what it did not understand, which may be the password.
        raise InvalidStoreUrl(
            "the address of the Postgres store is not understood. Write it like "
            "postgresql://user@host:5432/database (reserved characters in a password as %40 and "
            "so on)"
        ) from None
    named = {key: str(value) for key, value in found.items() if value is not None}
    if "@" in named.get("host", ""):
        raise InvalidStoreUrl("the address of the Postgres store has an @ too many: write %40")
    if not re.fullmatch(r"[\d,]*", named.get("port", "")):
        # Where a password holds a slash, the rest of it is taken for port and database.
        raise InvalidStoreUrl(
            "the port of the Postgres store is no number; in a password write %2F"
        )
    _check_encoding(named)
    quoted = '"' + schema.replace('"', '""') + '"'
    return Place(_location(named, schema), {**_setup(), **named}, quoted, schema)


def option_names() -> set[str]:
    """What may stand behind the `?` of an address."""
    return {item.keyword.decode() for item in driver().pq.Conninfo.get_defaults()} | {"ssl"}


def _check_schema(name: str) -> None:
    bad = not name.isprintable() or any(sign in name for sign in _NOT_IN_SCHEMA)
    if bad or not 1 <= len(name.encode()) <= _MAX_SCHEMA_BYTES:
        raise InvalidStoreUrl(
            f"{name!r} cannot be the name of a schema for a store: 1 to {_MAX_SCHEMA_BYTES} bytes "
            f"of UTF-8 that can be printed, without {' '.join(_NOT_IN_SCHEMA)}"
        )
    if name.startswith("pg_") or name == "information_schema":
        raise InvalidStoreUrl(f"the schema {name!r} belongs to Postgres itself: choose another")


def _check_encoding(named: Mapping[str, str]) -> None:
    given = named.get("client_encoding", _ENCODING)
    if given.replace("-", "").lower() not in {_ENCODING.lower(), "unicode"}:
        raise InvalidStoreUrl(
            f"client_encoding={given} would not hold every text: leave it out, it is {_ENCODING}"
        )


def _location(named: Mapping[str, str], schema: str) -> str:
    defaults = {
        item.keyword.decode(): item.val.decode()
        for item in driver().pq.Conninfo.get_defaults()
        if item.val is not None
    }
    known = {**defaults, **named}
    user = known.get("user", "")
    host = known.get("host") or known.get("hostaddr") or _LOCAL
    port = known.get("port") or _PORT
    parts = re.split(",", host.lower())
    ports = re.split(",", port)
    if len(ports) == 1:
        ports *= len(parts)
    hosts = ",".join(f"{quote(one, safe='')}:{at}" for one, at in zip(parts, ports, strict=False))
    database = quote(known.get("dbname") or user, safe="")
    return f"postgresql://{hosts}/{database}?schema={quote(schema, safe='')}"


def _setup() -> dict[str, str]:
    idle, interval, count = KEEPALIVE_SECONDS
    return {
        "connect_timeout": str(CONNECT_SECONDS),
        "keepalives": "1",
        "keepalives_idle": str(idle),
        "keepalives_interval": str(interval),
        "keepalives_count": str(count),
        "tcp_user_timeout": str(UNACKNOWLEDGED_SECONDS * 1000),
        "application_name": "agentkit",
        "client_encoding": _ENCODING,
    }
