"""Commands that look for runs where none can be: they say where they looked, and make nothing."""

import psycopg
import pytest

from tests.cli.test_unreachable import (
    ARGUMENTS,
    ON_ONE_STORE,
    Agentkit,
    agentkit,
    folder,
    told,
    told_as_json,
)

__all__ = ["agentkit", "folder"]

MAKES = {"run", "submit", "import", "migrate", "worker", "doctor"}

SCHEMAS = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'typ%'"


@pytest.mark.postgres
def test_a_schema_that_is_not_there_is_no_empty_store(
    agentkit: Agentkit, postgres_dsn: str
) -> None:
    """Whatever the command looks for: exit code 6, the store is named, and no schema is made."""
    typo = f"{postgres_dsn}?schema=typo"
    looking = [name for name in ON_ONE_STORE if name not in MAKES]

    for name in looking:
        line = told(agentkit(*name.split(), *ARGUMENTS.get(name, []), "--store", typo), 6)
        assert "there is no store at postgresql://" in line, name
        assert "schema=typo" in line, name
    assert "no store at" in told(agentkit("copy", typo, "sqlite:///new.db"), 6)
    assert "no store at" in told_as_json(agentkit("runs", "--json", "--store", typo), 6)
    found = agentkit("doctor", "--store", typo)
    with psycopg.connect(postgres_dsn) as db:
        made = db.execute(SCHEMAS).fetchall()

    assert {"runs", "show", "status", "export", "gc", "fork"} <= set(looking)
    assert "schema=typo: not there yet" in found.output
    assert [(0,)] == made


@pytest.mark.postgres
def test_a_schema_that_is_there_is_looked_into(agentkit: Agentkit, postgres_dsn: str) -> None:
    """An empty one is no error."""
    url = f"{postgres_dsn}?schema=typed"
    agentkit("migrate", "--store", url)

    found = agentkit("runs", "--store", url)

    assert (0, "") == (found.exit_code, found.stdout)
    assert "no runs in postgresql://" in found.stderr


@pytest.mark.redis
def test_where_no_runs_are_the_prefix_is_named(agentkit: Agentkit, redis_url: str) -> None:
    """A Redis has no schema that could be missing, so another prefix is just empty."""
    found = agentkit("runs", "--store", f"{redis_url}?prefix=typo")

    assert (0, "") == (found.exit_code, found.stdout)
    assert "prefix=typo" in found.stderr
