"""Which process keeps others from writing a SQLite file, where the system tells."""

from __future__ import annotations

from pathlib import Path

_LOCKS = Path("/proc/locks")

_WRITE_LOCK_BYTE = 120
"""Of the shared memory file: https://sqlite.org/walformat.html#locks."""

_STOPPED = {"T": " and stands still (it was stopped)", "t": " and stands still (in a debugger)"}


def writer_of(path: str) -> str:
    """`process 12 (name)`, and whether it stands still; empty where it is not known.

    The kernel's list is read, because a descriptor of our own on the file would, when it is closed,
    take this process's locks with it: https://sqlite.org/howtocorrupt.html#posix_close_bug.
    """
    try:
        inode = Path(path + "-shm").stat().st_ino
        locks = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return ""
    for line in locks.splitlines():
        # 1: POSIX ADVISORY WRITE 612 fe:01:11943 120 120; with "->" after the number who waits.
        words = line.split()
        if "->" in words or words[3:4] != ["WRITE"] or int(words[5].rpartition(":")[2]) != inode:
            continue
        first, last = int(words[6]), words[7]
        if first <= _WRITE_LOCK_BYTE and (last == "EOF" or int(last) >= _WRITE_LOCK_BYTE):
            return _named(words[4])
    return ""


def _named(pid: str) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or is of another pid namespace
        return f"process {pid}" if int(pid) > 0 else ""
    name, state = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2]
    return f"process {pid} ({name}){_STOPPED.get(state, '')}"
