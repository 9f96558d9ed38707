"""The harness itself: real processes, real signals, bounds."""

import os
import signal
import time
from pathlib import Path

import pytest

from agentkit.core.contracts.types import JSONObject
from agentkit.testing.crash import BORDERS, BorderLog, CrashPlan, ForkServer, WorkerStuck


def misbehave(argument: JSONObject) -> None:
    """What a worker may do instead of its work."""
    match argument["do"]:
        case "raise":
            raise LookupError("nothing there")
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            signal.pause()
        case _:
            Path(str(argument["path"])).write_text(str(os.getpid()))


HERE = "tests.crash.test_processes:misbehave"


def test_each_worker_is_a_process_of_its_own_and_its_end_is_told(tmp_path: Path) -> None:
    """Completed, failed with the traceback, left by an exit code, killed."""
    path = tmp_path / "pid"
    with ForkServer(HERE) as server:
        done = server.run({"do": "write", "path": str(path)})
        raised = server.run({"do": "raise"})
        left = server.run({"do": "exit"})
        killed = server.run({"do": "kill"})

    assert ("completed", str(done.pid)) == (done.how, path.read_text())
    assert "failed" == raised.how
    assert "LookupError: nothing there" in raised.detail
    assert ("failed", "exit code 7") == (left.how, left.detail)
    assert "killed" == killed.how
    assert 4 == len({done.pid, raised.pid, left.pid, killed.pid})


def test_a_worker_is_killed_from_outside_after_its_time() -> None:
    """`kill_after_seconds` is a SIGKILL of whatever it does then."""
    with ForkServer(HERE) as server:
        assert "killed" == server.run({"do": "hang"}, kill_after_seconds=0.05).how


def test_a_worker_that_does_not_end_is_an_error_and_goes_with_its_server() -> None:
    """No wait is without a bound, and no process is left behind."""
    server = ForkServer(HERE, limit_seconds=0.3)
    pid = server.start({"do": "hang"})

    with pytest.raises(WorkerStuck):
        server.wait()

    assert _has_ended(pid)


def test_a_plan_kills_by_number_and_by_name(tmp_path: Path) -> None:
    """The signal comes at the n-th border, or at the k-th one of a name; the log has it before."""
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        for at in (3, "append:before#2"):
            log = BorderLog(tmp_path / str(at))
            plan = CrashPlan(at, how=signal.SIGUSR1, log=log)
            for name in ("append:before", "append:after", "append:before", "append:after"):
                plan.border(name)
            assert ["append:before"] == log.kills()
            assert 4 == len(log.hits()) == plan.passed
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert [signal.SIGUSR1] * 2 == got


def test_only_known_borders_are_passed() -> None:
    """A misspelt border would never be seen as missing."""
    with pytest.raises(ValueError, match="no border"):
        CrashPlan().border("append:befor")

    assert len(set(BORDERS)) == len(BORDERS)


def _has_ended(pid: int) -> bool:
    """Whether the process ends within a bound; whoever inherits it may leave it a zombie."""
    stat, until = Path(f"/proc/{pid}/stat"), time.monotonic() + 10.0
    while time.monotonic() < until:
        if not stat.exists() or ") Z " in stat.read_text():
            return True
        os.sched_yield()
    return False
