"""Who holds a lease: one line of text, for messages and for proof of death only.

An owner names a process for ever: the boot of its machine, the namespaces in which its numbers
mean something, its pid, and the moment it started (pids come back, moments do not). Beside them
stands the drive, because one process may drive many runs and lose one of them.

Death is *proved* or it is not claimed. A lease whose holder cannot be proved dead simply has to
expire; a holder that is wrongly believed dead would act beside its successor. So everything
doubtful counts as alive: another machine, another container, a `/proc` that shows another
namespace than ours or hides other users' processes, a system without `/proc` (macOS), and any
string that was not written here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from agentkit.core.contracts.slots import check_id

__all__ = ["describe", "drive_of", "is_dead", "owner_id", "this_process"]

_TAG = "agentkit/1"
_UNKNOWN = "-"
_LONGEST_NUMBER = 20
_PROC = Path("/proc")
_THREADS, _STARTED = 17, 19  # positions in /proc/PID/stat behind the program's name
_UNREADABLE = (OSError, ValueError, IndexError)


class _Owner(NamedTuple):
    boot: str
    namespaces: str
    pid: int
    started: int
    drive: str

    @property
    def provable(self) -> bool:
        return self.boot != _UNKNOWN


class _Stat(NamedTuple):
    state: str
    threads: int
    started: int


def owner_id(drive: str) -> str:
    """Name the calling process and one of its drives, in one line.

    The line is `agentkit/1 BOOT PIDNS+TIMENS PID STARTED DRIVE`. Where `/proc` is missing or shows
    another pid namespace than the caller's, boot, namespaces and start are unknown (`-` and 0):
    such an owner can be shown, but never be proved dead.

    Args:
        drive: the drive's id; 1 to 512 characters without control characters.

    Raises:
        InvalidId: `drive` is none.
    """
    check_id(drive, what="drive id")
    me = _this_process(drive)
    return f"{_TAG} {me.boot} {me.namespaces} {me.pid} {me.started} {drive}"


def describe(owner: str) -> str:
    """Say in a few words where the holder lives: `pid 1234 on this machine`."""
    if not owner:
        return "nobody"
    parsed = _parse(owner)
    if parsed is None:
        return f"an owner of another kind, {owner!r}"
    me = _this_process("")
    if not (parsed.provable and me.provable):
        return f"pid {parsed.pid}, on a machine that does not tell which"
    if parsed.boot != me.boot:
        return f"pid {parsed.pid} on another machine"
    if parsed.namespaces != me.namespaces:
        return f"pid {parsed.pid} in another container on this machine"
    return f"pid {parsed.pid} on this machine"


def is_dead(owner: str, *, known_drives: Callable[[str], bool]) -> bool:
    """Whether it is proved that the holder will never act again.

    True only when boot and namespaces are ours and one of these holds: no process has the pid; the
    process with the pid started at another moment; it has ended and only waits to be reaped; it is
    the calling process and `known_drives` does not know the drive.

    Args:
        owner: any string; one that `owner_id` did not write is never dead.
        known_drives: asked about a drive of the calling process alone.
    """
    parsed = _parse(owner)
    if parsed is None or not parsed.provable:
        return False
    me = _this_process(parsed.drive)
    if (parsed.boot, parsed.namespaces) != (me.boot, me.namespaces):
        return False
    if parsed == me:
        return not known_drives(parsed.drive)
    try:
        stat = _stat(str(parsed.pid))
    except (FileNotFoundError, ProcessLookupError):
        # A `/proc` mounted with hidepid hides living processes of other users; kill does not.
        return _is_gone(parsed.pid)
    except _UNREADABLE:
        return False
    return stat.started != parsed.started or _has_ended(stat)


def this_process(owner: str) -> bool:
    """Whether the owner is provably the calling process, whichever of its drives."""
    parsed = _parse(owner)
    return parsed is not None and parsed.provable and parsed == _this_process(parsed.drive)


def drive_of(owner: str) -> str:
    """The drive that an owner names; empty for a string that `owner_id` did not write."""
    parsed = _parse(owner)
    return parsed.drive if parsed else ""


def _parse(owner: str) -> _Owner | None:
    match owner.split(" ", 5):
        case [tag, boot, namespaces, pid, started, drive] if tag == _TAG:
            if boot and namespaces and drive and _is_number(pid) and _is_number(started):
                return _Owner(boot, namespaces, int(pid), int(started), drive)
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER


def _this_process(drive: str) -> _Owner:
    # Read anew each time: a fork changes the answer, and a drive starts rarely.
    pid = os.getpid()
    try:
        if (_PROC / "self").readlink() != Path(str(pid)):
            # This /proc belongs to another pid namespace; its numbers are not ours.
            return _Owner(_UNKNOWN, _UNKNOWN, pid, 0, drive)
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespaces = f"{_namespace('pid')}+{_namespace('time')}"
        return _Owner(boot or _UNKNOWN, namespaces, pid, _stat("self").started, drive)
    except _UNREADABLE:
        return _Owner(_UNKNOWN, _UNKNOWN, pid, 0, drive)


def _namespace(kind: str) -> int:
    # Start times are told relative to the reader's time namespace, so that one counts too. Of the
    # calling thread, because a process whose first thread has ended shows none of its own.
    try:
        return (_PROC / "thread-self/ns" / kind).stat().st_ino
    except FileNotFoundError:
        if kind == "pid":
            raise
        return 0  # the kernel is older than time namespaces (Linux 5.6)


def _stat(pid: str) -> _Stat:
    """State, threads and start of a process, from `/proc/PID/stat` (proc_pid_stat(5))."""
    text = (_PROC / pid / "stat").read_bytes()
    # The second field is the program's name in parentheses, and may itself hold spaces and ")".
    fields = text[text.rindex(b")") + 1 :].split()
    return _Stat(fields[0].decode("ascii"), int(fields[_THREADS]), int(fields[_STARTED]))


def _has_ended(stat: _Stat) -> bool:
    # A process whose first thread alone has ended shows Z too, and its other threads go on.
    return stat.state in {"X", "x"} or (stat.state == "Z" and stat.threads <= 1)


def _is_gone(pid: int) -> bool:
    if pid <= 0:
        return False  # kill would ask about a whole process group
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
