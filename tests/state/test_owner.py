"""Owners: proof of death by real processes, and nothing else that counts as one."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import InvalidId
from agentkit.state.journal import owner as module
from agentkit.state.journal.owner import describe, drive_of, is_dead, owner_id, this_process

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="proof of death needs /proc"
)

WAITS = """
import sys
from agentkit.state.journal.owner import owner_id
print(owner_id("their drive"), flush=True)
sys.stdin.read()
"""
WITH_A_HOSTILE_NAME = "open('/proc/self/comm', 'w').write('a) Z 1 (b) 2 3')" + WAITS
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, os, sys, threading
from agentkit.state.journal.owner import owner_id
first = threading.get_native_id()

def second():
    while open(f"/proc/self/task/{first}/stat").read().rsplit(")")[-1].split()[0] != "Z":
        pass
    print(owner_id("their drive"), flush=True)
    os.read(0, 1)

threading.Thread(target=second).start()
ctypes.CDLL(None).pthread_exit(None)
"""
FORKS = """
import os
from agentkit.state.journal.owner import owner_id, this_process
mine = owner_id("d")
pid = os.fork()
if pid == 0:
    os._exit(0 if owner_id("d") != mine and not this_process(mine) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


class Worker(NamedTuple):
    """A child process and the owner it gave itself."""

    process: subprocess.Popen[str]
    owner: str

    def end(self) -> None:
        """Kill it and wait until it is a zombie that nobody has reaped."""
        self.process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def start() -> Iterator[Callable[[str], Worker]]:
    """Starts workers and ends them after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(program: str) -> Worker:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        return Worker(process, process.stdout.readline().rstrip("\n"))

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_living_process_is_not_dead(start: Callable[[str], Worker]) -> None:
    """Neither running nor stopped: a stopped worker acts again as soon as it is continued."""
    worker = start(WAITS)

    assert not _is_dead(worker.owner)
    worker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert not _is_dead(worker.owner)


def test_a_killed_process_is_dead_before_and_after_it_is_reaped(
    start: Callable[[str], Worker],
) -> None:
    """A zombie has stopped acting; whether its parent ever asks for it does not matter."""
    worker = start(WAITS)

    worker.end()
    assert _is_dead(worker.owner)
    worker.process.wait()

    assert _is_dead(worker.owner)


def test_a_reused_pid_does_not_keep_its_predecessor_alive(start: Callable[[str], Worker]) -> None:
    """The same pid with another start time is another process."""
    worker = start(WAITS)

    assert _is_dead(_with(worker.owner, started=lambda ticks: ticks - 1))
    assert _is_dead(_with(owner_id("d"), started=lambda ticks: ticks - 1))


def test_a_name_with_parentheses_fools_nobody(start: Callable[[str], Worker]) -> None:
    """A program may be called `a) Z 1 (b`: it is alive, and dead once it was killed."""
    worker = start(WITH_A_HOSTILE_NAME)
    stat = Path(f"/proc/{worker.process.pid}/stat").read_text(encoding="utf-8")
    assert "(a) Z 1 (b) 2 3)" in stat

    assert not _is_dead(worker.owner)
    worker.end()
    assert _is_dead(worker.owner)


def test_a_process_whose_other_threads_go_on_is_not_dead(start: Callable[[str], Worker]) -> None:
    """Its first thread alone has ended: `/proc` shows Z, and the process still acts."""
    worker = start(WITHOUT_ITS_FIRST_THREAD)
    state = Path(f"/proc/{worker.process.pid}/stat").read_text(encoding="utf-8").split()[2]
    assert state == "Z"

    assert not _is_dead(worker.owner)
    worker.end()
    assert _is_dead(worker.owner)


def test_a_drive_of_this_process_is_as_dead_as_the_table_of_drives_says() -> None:
    """Only the drive that the owner names is asked about."""
    mine = owner_id("my drive")

    assert is_dead(mine, known_drives=lambda drive: drive == "another")
    assert not is_dead(mine, known_drives=lambda drive: drive == "my drive")


def test_another_machine_or_container_is_never_proved_dead(
    start: Callable[[str], Worker],
) -> None:
    """Elsewhere the pid of a dead process may be a living one's, and start times mean nothing."""
    worker = start(WAITS)
    worker.end()
    tag, boot, namespaces, pid, started, drive = worker.owner.split(" ", 5)
    pids, times = namespaces.split("+")
    elsewhere = [
        (tag, "another-boot", namespaces, pid, started, drive),
        (tag, boot, f"1{pids}+{times}", pid, started, drive),
        (tag, boot, f"{pids}+1{times}", pid, started, drive),
        (tag, "-", "-", pid, "0", drive),
    ]

    assert [False] * 4 == [_is_dead(" ".join(parts)) for parts in elsewhere]
    assert _is_dead(worker.owner)


def test_a_drive_elsewhere_is_not_one_of_this_process() -> None:
    """Our pid and start time under another boot or namespace name somebody else."""
    tag, boot, namespaces, pid, started, drive = owner_id("d").split(" ")

    assert not this_process(f"{tag} another-boot {namespaces} {pid} {started} {drive}")
    assert not this_process(f"{tag} {boot} 1{namespaces} {pid} {started} {drive}")


@given(st.text())
def test_foreign_strings_are_never_dead(text: str) -> None:
    """Whatever somebody's own store says, it proves nothing and breaks nothing."""
    assert not _is_dead(text)
    assert not this_process(text)
    assert drive_of(text) == ""
    assert describe(text)


@given(position=st.integers(0, 5), field=st.text(max_size=30) | st.integers().map(str))
def test_a_damaged_owner_breaks_nothing(position: int, field: str) -> None:
    """One field replaced by anything: an answer, and never the death of a living process."""
    parts = owner_id("d").split(" ")
    parts[position] = field
    damaged = " ".join(parts)

    assert describe(damaged)
    drive_of(damaged)
    this_process(damaged)
    if position not in {3, 4}:  # another pid or start may well be one of a dead process
        assert not is_dead(damaged, known_drives=lambda drive: True)
    _is_dead(damaged)


@pytest.mark.parametrize("pid", ["0", "99999999999999999999"])
def test_impossible_pids_prove_nothing(pid: str) -> None:
    """Pid 0 would ask about our own group, one too large for the system about nobody."""
    parts = owner_id("d").split(" ")
    parts[3] = pid

    assert not _is_dead(" ".join(parts))


def test_a_hidden_process_is_not_taken_for_a_dead_one(
    start: Callable[[str], Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `hidepid` other users' processes are missing in `/proc`, and alive."""
    worker = start(WAITS)
    _fake_proc(tmp_path)
    monkeypatch.setattr(module, "_PROC", tmp_path)
    tag, boot, namespaces, _, _, _ = owner_id("d").split(" ")
    _, _, _, pid, started, drive = worker.owner.split(" ", 5)
    owner = f"{tag} {boot} {namespaces} {pid} {started} {drive}"
    assert boot == "our-boot"

    assert not _is_dead(owner)
    worker.end()
    worker.process.wait()
    assert _is_dead(owner)


def test_an_unreadable_process_is_not_taken_for_a_dead_one(
    start: Callable[[str], Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `stat` of an unknown form proves nothing."""
    worker = start(WAITS)
    _fake_proc(tmp_path)
    monkeypatch.setattr(module, "_PROC", tmp_path)
    tag, boot, namespaces, _, _, _ = owner_id("d").split(" ")
    _, _, _, pid, started, drive = worker.owner.split(" ", 5)
    owner = f"{tag} {boot} {namespaces} {pid} {started} {drive}"
    (tmp_path / pid).mkdir()

    for text in ("", "1 (x", "1 (x) S", "1 (x) S" + " y" * 30):
        (tmp_path / pid / "stat").write_text(text, encoding="ascii")
        assert not _is_dead(owner)


@pytest.mark.parametrize("proc", ["missing", "of another namespace"])
def test_without_a_proc_of_its_own_a_process_proves_nothing(
    proc: str,
    start: Callable[[str], Worker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then owners can be shown, and nobody is dead: neither we nor whom we look at."""
    worker = start(WAITS)
    worker.end()
    if proc == "of another namespace":
        _fake_proc(tmp_path, pid=os.getpid() + 1)
    monkeypatch.setattr(module, "_PROC", tmp_path)
    mine = owner_id("my drive")

    assert mine == f"agentkit/1 - - {os.getpid()} 0 my drive"
    assert drive_of(mine) == "my drive"
    assert not this_process(mine)
    assert not _is_dead(mine)
    assert not _is_dead(worker.owner)
    assert describe(mine) == f"pid {os.getpid()}, on a machine that does not tell which"


def test_an_owner_is_told_in_words(start: Callable[[str], Worker]) -> None:
    """Messages say where to look for the holder."""
    worker = start(WAITS)
    tag, _, namespaces, pid, started, drive = worker.owner.split(" ", 5)
    other_boot = f"{tag} another-boot {namespaces} {pid} {started} {drive}"

    assert describe(worker.owner) == f"pid {worker.process.pid} on this machine"
    assert describe(other_boot) == f"pid {worker.process.pid} on another machine"
    assert describe("worker-7") == "an owner of another kind, 'worker-7'"
    assert describe("") == "nobody"


def test_this_process_knows_its_own_drives(start: Callable[[str], Worker]) -> None:
    """Drive ids may hold spaces; those of other processes are not ours."""
    worker = start(WAITS)

    assert this_process(owner_id("any drive"))
    assert not this_process(worker.owner)
    assert drive_of(worker.owner) == "their drive"


def test_an_owner_is_one_line() -> None:
    """A drive id that would break the line is refused."""
    with pytest.raises(InvalidId):
        owner_id("two\nlines")


def test_a_forked_child_is_another_owner() -> None:
    """Nothing of the parent's name is kept over a fork."""
    done = subprocess.run([sys.executable, "-c", FORKS], check=False)

    assert done.returncode == 0


def _is_dead(owner: str) -> bool:
    return is_dead(owner, known_drives=lambda drive: False)


def _with(owner: str, *, started: Callable[[int], int]) -> str:
    parts = owner.split(" ", 5)
    parts[4] = str(started(int(parts[4])))
    return " ".join(parts)


def _fake_proc(root: Path, *, pid: int | None = None) -> None:
    pid = pid or os.getpid()
    (root / "sys/kernel/random").mkdir(parents=True)
    (root / "sys/kernel/random/boot_id").write_text("our-boot\n", encoding="ascii")
    (root / str(pid) / "ns").mkdir(parents=True)
    (root / str(pid) / "ns/pid").touch()
    (root / str(pid) / "stat").write_bytes(Path("/proc/self/stat").read_bytes())
    (root / "self").symlink_to(str(pid))
    (root / "thread-self").symlink_to(str(pid))
