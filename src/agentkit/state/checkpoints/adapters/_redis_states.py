"""What a Redis says of itself: version, role, and the settings that decide what it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from agentkit.core.contracts.errors import StoreError, StoreUnreachable

OLDEST_SERVER = (6, 2)
"""The first Redis that has what the scripts and lists use."""

SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")
"""What it is asked for by CONFIG GET."""


class ServerState(NamedTuple):
    """What a server says of itself; an empty text where it does not.

    Args:
        version: like `7.0.15`.
        run_id: another one each time its process starts.
        role: `master` or `slave`.
        replicas: how many follow it.
        settings: those that decide what it keeps, by name.
    """

    version: str = ""
    run_id: str = ""
    role: str = ""
    replicas: int = 0
    settings: tuple[tuple[str, str], ...] = ()

    def setting(self, name: str) -> str:
        """The setting of that name."""
        return dict(self.settings).get(name, "")

    @property
    def restartable(self) -> bool:
        """Whether all that it acknowledged is on its disk."""
        return (
            self.setting("appendonly") == "yes"
            and self.setting("appendfsync") == "always"
            and self.setting("no-appendfsync-on-rewrite") != "yes"
        )

    def check(self, name: str) -> None:
        """Return if the server has what a store needs.

        Raises:
            StoreError: it is too old.
        """
        version = tuple(int(part) for part in self.version.split(".")[:2] if part.isdecimal())
        if version and version < OLDEST_SERVER:
            raise StoreError(
                f"the Redis at {name} is version {self.version}; a store needs 6.2 or later, or a "
                f"Valkey. Nothing was written."
            )


def state_of(server: object, replication: object, settings: Sequence[object]) -> ServerState:
    """The state in the answers to INFO and CONFIG GET, errors among them."""
    about = _fields(server) | _fields(replication)
    found = [
        (name, cast("bytes", answer[1]).decode())
        for name, answer in zip(SETTINGS, settings, strict=True)
        if isinstance(answer, list) and len(answer) > 1
    ]
    return ServerState(
        version=about.get("redis_version", ""),
        run_id=about.get("run_id", ""),
        role=about.get("role", ""),
        replicas=int(about.get("connected_slaves", "0")),
        settings=tuple(found),
    )


def refuse_unsafe(state: ServerState) -> None:
    """Raise where a server may lose what it acknowledged; see `strict` of the store."""
    wrong = [
        f"{name} is {state.setting(name) or 'not told'}, not {wanted}"
        for name, wanted in (
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("no-appendfsync-on-rewrite", "no"),
            ("maxmemory-policy", "noeviction"),
        )
        if state.setting(name) != wanted
    ]
    if wrong:
        raise StoreUnreachable(
            f"the Redis is refused, since it may lose what it has acknowledged and strict is set: "
            f"{'; '.join(wrong)}. Set it with CONFIG SET and in redis.conf, or leave strict off."
        )


def _fields(answer: object) -> dict[str, str]:
    """The fields of an INFO, none where it was refused."""
    if not isinstance(answer, bytes):
        return {}
    lines = answer.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
