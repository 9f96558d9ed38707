"""Process groups of commands, and how what is left of one is killed without hitting another.

A group keeps its number while one process of it lives, and numbers come back when none does. So a
group is only ever killed by number while its first process is the one that was started, or while a
process of it carries the mark that was put into the environment of the first one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

__all__ = ["MARK_VARIABLE", "RECORD_PREFIX", "Group", "group_of", "kill_group"]

RECORD_PREFIX = "process:"
"""Begins the names under which tools record the groups of their commands."""

MARK_VARIABLE = "AGENTKIT_COMMAND"
"""Names, in a command's environment, the call that it belongs to."""

_PROC = Path("/proc")
_STATE, _GROUP, _STARTED = 0, 2, 19  # positions in /proc/PID/stat behind the program's name
_UNREADABLE = (OSError, ValueError, IndexError)


class Group(msgspec.Struct, frozen=True):
    """A command's processes.

    Args:
        number: of the group, and of its first process.
        started: when that began, in ticks since the boot; 0 where the system does not tell.
        mark: what `MARK_VARIABLE` says in its environment.
    """

    number: int
    started: int
    mark: str


def group_of(pid: int, mark: str) -> Group:
    """The group that a process leads which has just been started and not been waited for."""
    try:
        return Group(pid, int(_stat(pid)[_STARTED]), mark)
    except _UNREADABLE:
        return Group(pid, 0, mark)


def kill_group(group: Group) -> bool:
    """Send SIGKILL to what lives of the group; whether there was anything."""
    if not _is_ours(group):
        return False
    try:
        os.killpg(group.number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _is_ours(group: Group) -> bool:
    """Whether the number still belongs to this group, and somebody of it lives."""
    try:
        first = _stat(group.number)
    except _UNREADABLE:
        first = []
    if first and int(first[_STARTED]) != group.started:
        return False
    if first and first[_STATE] != "Z":
        return True
    mark = f"{MARK_VARIABLE}={group.mark}".encode()
    return any(mark in environment.split(b"\0") for environment in _environments(group.number))


def _environments(number: int) -> Iterator[bytes]:
    """Those of the living processes of a group, as far as they may be read."""
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if int(_stat(int(folder.name))[_GROUP]) == number:
                yield (folder / "environ").read_bytes()
        except _UNREADABLE:
            continue


def _stat(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` behind the program's name (proc_pid_stat(5))."""
    text = (_PROC / str(pid) / "stat").read_bytes()
    return text[text.rindex(b")") + 1 :].decode("ascii").split()
