"""A later release, as far as the schemas of stores go: it has more steps."""

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


FIRST_ON_POSTGRES = migrations.steps("postgres")

STEPS_ON_POSTGRES = (
    *FIRST_ON_POSTGRES,
    step_of(
        2,
        "length",
        "CREATE TABLE {schema}.agentkit_length (number bigint, length bigint NOT NULL);\n",
    ),
    step_of(
        3,
        "fill",
        "INSERT INTO {schema}.agentkit_length SELECT number, 0 FROM {schema}.agentkit_run "
        "WHERE number NOT IN (SELECT number FROM {schema}.agentkit_length) LIMIT 25;\n"
        "-- then\n"
        "ALTER TABLE {schema}.agentkit_length ADD PRIMARY KEY (number);\n",
    ),
    step_of(
        4,
        "note",
        "CREATE TABLE {schema}.agentkit_noted (at bigint);\n"
        "INSERT INTO {schema}.agentkit_noted VALUES (1);\n",
    ),
)


def steps(dialect: str) -> tuple[Step, ...]:
    """All steps of the later release."""
    return {"sqlite": STEPS, "postgres": STEPS_ON_POSTGRES}[dialect]


def only_the_first(dialect: str) -> tuple[Step, ...]:
    """The steps of this release."""
    return {"sqlite": FIRST, "postgres": FIRST_ON_POSTGRES}[dialect]


def later_release() -> None:
    """Make this process one of the later release."""
    migrations.steps = steps  # type: ignore[assignment]
