"""The stores. Each loads its driver when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.state.checkpoints.adapters.memory import InMemoryCheckpointStore
    from agentkit.state.checkpoints.adapters.postgres import PostgresCheckpointStore
    from agentkit.state.checkpoints.adapters.redis import RedisCheckpointStore
    from agentkit.state.checkpoints.adapters.sqlite import SqliteCheckpointStore
    from agentkit.state.checkpoints.adapters.url import open_store
    from agentkit.state.checkpoints.adapters.wrapper import StoreWrapper

__all__ = [
    "InMemoryCheckpointStore",
    "PostgresCheckpointStore",
    "RedisCheckpointStore",
    "SqliteCheckpointStore",
    "StoreWrapper",
    "open_store",
]

_HOMES = {
    "InMemoryCheckpointStore": "memory",
    "PostgresCheckpointStore": "postgres",
    "RedisCheckpointStore": "redis",
    "SqliteCheckpointStore": "sqlite",
    "StoreWrapper": "wrapper",
    "open_store": "url",
}


if not TYPE_CHECKING:  # a type checker that saw it would accept every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
