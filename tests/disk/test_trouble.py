"""Operations fail and disks are full: the error surfaces, nothing is lost, the run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import apsw
import pytest

from agentkit.state.checkpoints.adapters import sqlite
from agentkit.state.checkpoints.adapters._lanes import Outcome
from agentkit.state.checkpoints.adapters._sqlite_writer import Work, write_group
from agentkit.testing.disk.__main__ import main
from agentkit.testing.disk.trouble import READS, Kind, trials, tried


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kind", ["error", "full"])
def test_f072_an_operation_that_fails_costs_no_entry_and_doubles_no_effect(
    kind: Kind, lasting: bool
) -> None:
    """Each ninth write, sync, truncation, opening or deletion fails, once or from then on: what was
    acknowledged is durable, and once the disk is well the run ends as it would have.
    """
    done = list(trials(kind=kind, lasting=lasting, stride=9, first=2 if lasting else 1))

    assert [] == [trial for trial in done if trial.wrong]
    hit = {trial.operation.split()[0] for trial in done if trial.operation}
    assert {"write"} <= hit
    assert len(done) > 8
    stopped = [trial for trial in done if trial.surfaced]
    assert len(stopped) > (len(done) // 2 if lasting else 0)
    told = [trial.surfaced for trial in stopped]
    assert all("Check the disk and its free space" in t or "Free some space" in t for t in told)


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kind", ["error", "full"])
def test_f072_every_operation_that_fails(kind: Kind, lasting: bool) -> None:
    """The same for every single one."""
    done = list(trials(kind=kind, lasting=lasting))

    assert [] == [trial for trial in done if trial.wrong]
    assert {"write", "sync", "open", "delete"} <= {
        trial.operation.split()[0] for trial in done if trial.operation
    }


def test_a_read_that_fails_changes_nothing() -> None:
    """Each twelfth read or look at a size fails once."""
    done = list(trials(operations=READS, stride=12))

    assert [] == [trial for trial in done if trial.wrong]
    assert len(done) > 3


def deaf(db: apsw.Connection, works: Sequence[Work], path: str) -> list[Outcome]:
    """A store with a bug: it says "durable" although its COMMIT failed."""
    outcomes: list[Outcome] = []

    def noting(work: Work) -> Work:
        def noted(db: apsw.Connection) -> object:
            value = work(db)
            outcomes.append(Outcome(value))
            return value

        return noted

    with contextlib.suppress(Exception):
        return write_group(db, [noting(work) for work in works], path)
    if len(outcomes) == len(works):
        return outcomes
    return write_group(db, works, path)


def test_a_store_that_does_not_hear_a_failed_commit_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rig finds an acknowledgement of what is not durable."""
    monkeypatch.setattr(sqlite, "write_group", deaf)

    done = [tried(number, kind="error", lasting=False) for number in range(44, 110, 5)]

    wrong = [what for trial in done for what in trial.wrong]
    assert any("was acknowledged and is not durable" in what for what in wrong)
    assert any(what.startswith("I2: notify") for what in wrong), "an effect was doubled"
    assert sum(bool(trial.wrong) for trial in done) > len(done) // 2


def test_on_a_full_file_system_a_run_stops_and_goes_on_when_there_is_space(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A small real file system with 0, 4, 8 … KB of room."""
    code = main(["full-disk"])

    assert 0 == code
    assert "all ended right" in capfd.readouterr().out
