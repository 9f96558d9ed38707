"""Runs of a tenant's user: within reach of every command that names them, and of no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import pytest

from agentkit.cli.app import cli
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from tests.cli.kit import Shell
from tests.state.stores.moving import finished, interrupted

ANN = ("--tenant", "acme", "--user", "ann")


def _commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= _commands(command, f"{path}{name} ")
        else:
            found[path + name] = command
    return found


@pytest.fixture
def runs(shell: Shell) -> Path:
    """Of ann at acme: one that ended and one whose worker vanished."""
    path = shell.folder / "runs.db"

    async def make() -> None:
        store = SqliteCheckpointStore(path)
        await finished(store, "d1", scope=Scope("acme", "ann"))
        await interrupted(store, "i1", scope=Scope("acme", "ann"))
        await store.aclose()

    asyncio.run(make())
    return path


def test_every_command_that_knows_a_tenant_knows_its_user() -> None:
    """A scope has both parts, so no command may know one alone."""
    options = {
        name: {param.name for param in command.params} & {"tenant", "user"}
        for name, command in _commands(cli).items()
    }

    assert {} == {name: found for name, found in options.items() if len(found) == 1}
    assert 15 < sum(len(found) == 2 for found in options.values())


def test_runs_of_a_user_are_looked_at_and_stopped(shell: Shell, runs: Path) -> None:
    """By tenant and user together; the tenant alone is another scope."""
    listed = shell("runs", "--json", *ANN).json
    shown = shell("show", "d1", "--json", *ANN)
    others = shell("show", "d1", "--tenant", "acme")
    cancelled = shell("cancel", "i1", "--wait", "0", *ANN)

    assert {"d1", "i1"} == {run["run"] for run in listed}
    assert (0, "done", 3) == (shown.code, shown.json["status"], others.code)
    assert 0 == cancelled.code, cancelled


def test_runs_of_a_user_are_moved_and_removed_alone(shell: Shell, runs: Path) -> None:
    """What is moved or removed may be narrowed to one user, over all tenants or of one."""
    bob = ("--user", "bob")
    none = shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--json", *bob)
    copied = shell("copy", "sqlite:///runs.db", "sqlite:///b.db", "--run", "d1", "--json", *ANN)
    kept = shell("gc", "--older-than", "0s", "--json", *bob)
    pruned = shell("gc", "--older-than", "0s", "--json", "--user", "ann")

    assert (0, 1) == (none.json["copied"], copied.json["copied"])
    assert (0, 1) == (kept.json["pruned"], pruned.json["pruned"])


def test_what_can_be_pasted_names_the_user(shell: Shell, runs: Path) -> None:
    """The command that carries a run on is of the same scope."""
    forked = shell("fork", "d1", "--from", "1", *ANN)

    assert 0 == forked.code, forked
    assert "--tenant acme --user ann" in forked.out + forked.err


def test_a_user_that_cannot_be_is_refused(shell: Shell, runs: Path) -> None:
    """With 2, before anything is opened."""
    for command in (("runs",), ("show", "d1"), ("gc", "--older-than", "0s")):
        refused = shell(*command, "--user", "a\x07b")
        assert (2, True) == (refused.code, "control characters" in refused.err), refused
