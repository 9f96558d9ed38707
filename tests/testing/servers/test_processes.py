"""No server outlives the process that wanted it."""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentkit.testing.servers import PostgresServer, RedisServer, ServerFailed
from agentkit.testing.servers.ports import take_port
from agentkit.testing.servers.processes import ServerProcess, make_folder, run_tool, wait_until

STARTERS = {
    "postgres": "PostgresServer(fsync=False)",
    "redis": "RedisServer()",
    "pgbouncer": "(pg := PostgresServer(fsync=False), PgBouncer(pg))[1]",
}
PROGRAM = """
import os, sys
from agentkit.testing.servers import *
server = {starter}
folder = server.folder
print(server.process.pid, os.getpid(), folder, flush=True)
{then}
"""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in STARTERS]
)
def test_a_killed_process_leaves_no_server_behind(kind: str) -> None:
    """After SIGKILL of the process that started it, server and folder are gone by themselves."""
    with _started(kind, then="sys.stdin.read()") as child:
        pid, folder = _told(child)
        gone = os.pidfd_open(pid)
        child.kill()

    assert _ends(gone)
    wait_until(lambda: not folder.exists(), what="the folder is removed")


@pytest.mark.redis
def test_a_process_that_forgets_its_server_leaves_none_behind() -> None:
    """Also a process that just ends takes its server along."""
    with _started("redis", then="sys.stdin.readline(); os._exit(0)") as child:
        pid, folder = _told(child)
        gone = os.pidfd_open(pid)
        child.communicate(b"go\n", timeout=60)

    assert _ends(gone)
    wait_until(lambda: not folder.exists(), what="the folder is removed")


@pytest.mark.redis
def test_a_server_starts_in_a_thread_and_outlives_it() -> None:
    """It is bound to the process, not to the thread that started it."""
    then = """
import threading
def start():
    global server
    server = RedisServer()
thread = threading.Thread(target=start); thread.start(); thread.join()
print(server.ask("PING"), flush=True)
"""
    with _started("redis", then=then) as child:
        _told(child)

        assert child.stdout is not None
        assert b"PONG\n" == child.stdout.readline()


@pytest.mark.redis
def test_a_forked_child_does_not_hold_the_server() -> None:
    """A child that lives on does not keep the server of its killed parent."""
    then = """
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""
    with _started("redis", then=then) as child:
        pid, _ = _told(child)
        gone = os.pidfd_open(pid)
        child.kill()
        assert _ends(gone)


@pytest.mark.postgres
def test_nothing_that_a_server_forked_outlives_its_kill() -> None:
    """A kill takes the children too, though they have sessions of their own."""
    with PostgresServer(fsync=False) as server:
        assert server.process is not None
        children = [os.pidfd_open(pid) for pid in _children(server.process.pid)]

        server.kill()

        assert len(children) > 3
        assert all(_ends(child, seconds=0) for child in children)
        for child in children:
            os.close(child)


def test_what_a_server_forked_ends_with_it() -> None:
    """Where a server dies alone, its orphans are gone when the wait for its end is over."""
    folder = make_folder("orphans")
    script = "sleep 1000 & echo $! >orphan; exec sleep 1000"
    process = ServerProcess(["/bin/sh", "-c", script], folder=folder)
    wait_until(lambda: bool(_text(folder / "orphan")), what="the orphan is there")
    orphan = os.pidfd_open(int(_text(folder / "orphan")))

    os.kill(process.pid, signal.SIGKILL)

    assert 128 + signal.SIGKILL == process.wait()
    assert _ends(orphan, seconds=0)
    os.close(orphan)
    shutil.rmtree(folder)


@pytest.mark.redis
def test_the_kernel_ends_a_server_whose_keeper_is_killed() -> None:
    """Not even SIGKILL of the keeper leaves a server."""
    server = RedisServer()
    assert server.process is not None
    gone = os.pidfd_open(server.process.pid)
    keeper = int(_status(server.process.pid, "PPid"))

    os.kill(keeper, signal.SIGKILL)

    assert _ends(gone)
    server.close()


def test_a_program_that_is_none_says_so() -> None:
    """A command that cannot be run ends with the status that shells use; its log says why."""
    folder = make_folder("none")
    process = ServerProcess(["/nonexistent"], folder=folder)

    assert 127 == process.wait()
    assert "/nonexistent" in process.log
    with pytest.raises(ServerFailed, match="/nonexistent"):
        run_tool(["/nonexistent"])
    shutil.rmtree(folder)


def test_waiting_for_what_does_not_come_ends() -> None:
    """The error says what was waited for."""
    with pytest.raises(ServerFailed, match="pigs fly: not within 0 s"):
        wait_until(lambda: False, what="pigs fly", seconds=0)


def test_ports_are_taken_once_over_all_processes() -> None:
    """Another process does not get a port that this one holds, though nobody listens on it."""
    ours = [take_port() for _ in range(3)]
    program = (
        "import os; from agentkit.testing.servers import ports\n"
        f"ports.os.getpid = lambda: {os.getpid()}\n"  # start the search where we started
        "print(*(ports.take_port() for _ in range(3)))"
    )
    theirs = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert 3 == len(set(ours))
    assert set() == set(ours) & set(map(int, theirs.split()))


def _started(kind: str, *, then: str) -> "subprocess.Popen[bytes]":
    program = PROGRAM.format(starter=STARTERS[kind], then=then)
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _told(child: "subprocess.Popen[bytes]") -> tuple[int, Path]:
    assert child.stdout is not None
    pid, _, folder = child.stdout.readline().decode().split()
    return int(pid), Path(folder)


def _ends(process: int, *, seconds: float = 60) -> bool:
    return bool(select.select([process], [], [], seconds)[0])


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8")
    return [int(child) for child in listed.split()]


def _status(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return dict(line.split(":\t", 1) for line in lines)[field]


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip() if path.exists() else ""
