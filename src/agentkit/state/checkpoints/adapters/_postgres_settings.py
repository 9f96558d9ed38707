"""What a transactional tool may have left in its session, and how that is undone."""

from __future__ import annotations

from typing import NamedTuple

from agentkit.state.checkpoints.adapters._postgres_session import OPERATION_SECONDS, Db, execute
from agentkit.state.checkpoints.adapters._queries import queries


class Settings(NamedTuple):
    """The settings of a session that are not those it was opened with, each as text."""

    names: list[str]
    values: list[str]


def settings_of(db: Db) -> Settings:
    """What whoever owns the session has set in it; asked for outside of a transaction."""
    rows = execute(db, queries("postgres")["session_settings"])
    return Settings([name for name, _ in rows], [value for _, value in rows])


def put_back(db: Db, settings: Settings | None) -> None:
    """In the transaction of a tool that has returned: what it set for longer than that is gone,
    and so are locks that would outlive it. Behind a pooler the session is somebody else's next.

    Args:
        db: the connection.
        settings: those to set again; `None` for a session of our own, which has none, nor
            temporary tables that anybody would miss.
    """
    sql = queries("postgres")
    execute(db, sql["reset_session"], binary=False)
    if settings is None:
        execute(db, sql["forget_tables"], binary=False)
    elif settings.names:
        execute(db, sql["set_settings"], (settings.names, settings.values))
    within = str(round(OPERATION_SECONDS * 1000))  # the reset took our own limits too
    execute(db, sql["limit"], (within, within))
