"""A later release, as far as the schema of SQLite stores goes: it has more steps."""

from agentkit.state.checkpoints.adapters import _migrations as migrations
from agentkit.state.checkpoints.adapters._migrations import Step, step_of

FIRST = migrations.steps("sqlite")

STEPS = (
    *FIRST,
    step_of(
        2,
        "length",
        "CREATE TABLE agentkit_length (number INTEGER PRIMARY KEY, length INTEGER);\n"
        "PRAGMA user_version = 2;\n",
    ),
    step_of(
        3,
        "fill",
        "INSERT INTO agentkit_length SELECT number, 0 FROM agentkit_run "
        "WHERE number NOT IN (SELECT number FROM agentkit_length) LIMIT 25;\n"
        "-- then\n"
        "PRAGMA user_version = 3;\n",
    ),
    step_of(
        4,
        "note",
        "CREATE TABLE agentkit_noted (at INTEGER);\n"
        "INSERT INTO agentkit_noted VALUES (1);\n"
        "PRAGMA user_version = 4;\n",
    ),
)


def steps(dialect: str) -> tuple[Step, ...]:
    """All steps of the later release."""
    assert dialect == "sqlite"
    return STEPS


def only_the_first(dialect: str) -> tuple[Step, ...]:
    """The steps of this release."""
    assert dialect == "sqlite"
    return FIRST


def later_release() -> None:
    """Make this process one of the later release."""
    migrations.steps = steps  # type: ignore[assignment]
