"""Keeps one server: starts it, passes signals on, and leaves nothing behind. Run as a script.

    python _keeper.py ASKER FOLDER FAREWELL UID GID PROGRAM ARGUMENT...

ASKER is the pid of the process that wants the server, FAREWELL the number of the signal by which
the server is asked to leave; a UID of -1 changes no user.

A process between the one that wants a server and the server, so that the server's end does not
depend on anybody's good manners. The keeper adopts what the server forked, kills all of it when the
server ends, and ends itself when none of it is left. When the process that wanted the server is
gone, however it went, the server is asked to leave, then killed, and its folder is removed. When
the keeper itself is killed, the kernel kills the server.

It prints the server's pid. Orders come by stdin, a line each: the number of a signal. SIGKILL
strikes the server and all that it forked in one go, as a crash of the machine would.

Only the standard library is imported: it has to start in no time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import NamedTuple

_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)
_SET_CHILD_SUBREAPER = 36
_FAREWELL_SECONDS = 3.0


class Order(NamedTuple):
    """What to keep, for whom."""

    asker: int
    folder: str
    farewell: int
    uid: int
    gid: int
    command: list[str]


def keep(order: Order) -> int:
    """Run the server until it ends or its asker is gone; returns its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    asker = os.pidfd_open(order.asker)
    server = _start(order)
    serving = os.pidfd_open(server)
    os.write(1, b"%d\n" % server)
    orders = b""
    while True:
        ready, _, _ = select.select([0, asker, serving], [], [])
        if serving in ready:
            return _clear(server)
        part = os.read(0, 4096) if 0 in ready else b""
        if os.getppid() != order.asker or (0 in ready and not part):
            _farewell(server, serving, order.farewell)
            _clear(server)
            shutil.rmtree(order.folder, ignore_errors=True)
            return 0
        *whole, orders = (orders + part).split(b"\n")
        for number in map(int, whole):
            _kill_all(server) if number == signal.SIGKILL else _signal(server, number)


def _start(order: Order) -> int:
    """Fork the server; returns its pid."""
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(f"{order.folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if order.uid >= 0:
            os.setgroups([])
            os.setgid(order.gid)
            os.setuid(order.uid)
        _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)  # a change of user would have cleared it
        if os.getppid() == keeper:
            os.chdir(order.folder)
            os.execv(order.command[0], order.command)  # noqa: S606 - no shell is wanted
    except OSError as exc:
        os.write(2, f"{order.command[0]}: {exc}\n".encode())
    finally:
        os._exit(127)


def _farewell(server: int, serving: int, number: int) -> None:
    _signal(server, number)
    _signal(server, signal.SIGCONT)
    select.select([serving], [], [], _FAREWELL_SECONDS)


def _clear(server: int) -> int:
    """Kill and reap all that is left; returns how the server ended."""
    status = 0
    _kill_all(server)
    while True:
        try:
            pid, ended = os.wait()
        except ChildProcessError:
            return status if status >= 0 else 128 - status
        if pid == server:
            status = os.waitstatus_to_exitcode(ended)
        _kill_all(server)  # what it had forked is ours now


def _kill_all(server: int) -> None:
    """SIGKILL the server and everything below it; nothing of it can fork meanwhile."""
    stopped: set[int] = set()
    while fresh := _below(os.getpid()) - stopped:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        stopped |= fresh
    for pid in sorted(stopped, key=lambda pid: pid != server):
        _signal(pid, signal.SIGKILL)


def _below(root: int) -> set[int]:
    """The living processes whose parents lead to this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_bytes().rpartition(b") ")[2].split()[:2]
            except (OSError, ValueError):
                continue  # gone meanwhile
            if state not in b"ZX":
                parents[int(entry.name)] = int(parent)
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    asker, folder, farewell, uid, gid, *command = sys.argv[1:]
    order = Order(int(asker), folder, int(farewell), int(uid), int(gid), command)
    sys.exit(keep(order))
