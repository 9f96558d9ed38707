"""`copy`, `export` and `import`: runs from one place to another."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from agentkit.cli.exits import FAILED, NOT_FOUND, OK
from agentkit.cli.output import emit_json, one_line, say
from agentkit.cli.session import leave_with, run_command
from agentkit.core.contracts.errors import (
    AgentkitError,
    InvalidStoreUrl,
    RunNotFound,
    StoreUnreachable,
)
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.runtime import SystemClock
from agentkit.state.checkpoints.adapters import open_store
from agentkit.state.upkeep import (
    Moved,
    Selection,
    copy_runs,
    export_runs,
    header_now,
    import_runs,
)
from agentkit.state.upkeep.lines import MAX_LINE_BYTES

__all__ = ["MoveOrder", "copy_store", "export_store", "import_file"]

_PROGRESS_RUNS = 100
_CARRY_ON = (
    "not ended: {count} of these runs are in both places now. Carry each on in one of them only; "
    "the idempotency keys of its calls are the same in both."
)
_NO_VALUES = "values of ToolContext.once belong to no run and are not moved"


class MoveOrder(NamedTuple):
    """Which runs a command line asks for."""

    runs: Sequence[str]
    tenant: str | None
    user: str | None = None

    def selection(self) -> Selection:
        """The same, checked.

        Raises:
            InvalidId: no run, tenant or user can have such a name.
        """
        for run in self.runs:
            check_id(run)
        Scope(self.tenant or "", self.user or "").key  # noqa: B018 - an unusable one raises
        return Selection(tuple(self.runs), self.tenant, self.user)


def copy_store(source: str, destination: str, order: MoveOrder, *, as_json: bool) -> NoReturn:
    """Copy and tell; leaves with 1 where a run was left out."""
    try:
        selection = order.selection()
        target = open_store(destination)
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        try:
            moved = copy_runs(store, target, selection, clock=SystemClock())
            report = await _Report("copied").follow(moved)
        finally:
            await target.aclose()
        return report.tell(as_json, source=store.location, destination=target.location)

    run_command(source, work, as_json=as_json)


def export_store(
    store_url: str | None, order: MoveOrder, *, output: str | None, as_json: bool
) -> NoReturn:
    """Write the file and tell; leaves with 1 where a run was left out."""
    try:
        selection = order.selection()
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        clock = SystemClock()
        with _written(output) as write:
            header = header_now(store, clock=clock)
            moved = export_runs(store, write, selection, header=header, clock=clock)
            report = await _Report("exported").follow(moved)
        return report.tell(as_json, source=store.location, destination=output or "standard output")

    run_command(store_url, work, as_json=as_json)


def import_file(store_url: str | None, file: str, *, as_json: bool) -> NoReturn:
    """Import and tell; leaves with 1 where anything was left out."""

    async def work(store: JournalPort) -> int:
        with _opened(file) as lines:
            moved = import_runs(lines, store, clock=SystemClock())
            report = await _Report("imported").follow(moved)
        return report.tell(as_json, source=file, destination=store.location)

    try:
        with _opened(file):
            pass
    except AgentkitError as error:
        leave_with(error, as_json=as_json)
    run_command(store_url, work, as_json=as_json, creates=True)


class _Report:
    """What became of the runs: counts, and by name those that somebody must look at."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._moved = self._there = self._entries = self._tombstones = 0
        self._open: list[Moved] = []
        self._left_out: list[Moved] = []

    async def follow(self, moved: AsyncIterator[Moved]) -> _Report:
        """Count, and tell on standard error what is left out, at once."""
        async for one in moved:
            self._take(one)
            done = self._moved + self._there
            if one.error is None and done % _PROGRESS_RUNS == 0:
                say(f"{done} runs …", error=True)
        return self

    def tell(self, as_json: bool, *, source: str, destination: str) -> int:  # noqa: FBT001
        """Print it; returns the exit code."""
        if as_json:
            emit_json(self._as_json(source, destination))
        else:
            there = f", {self._there} were there already" if self._there else ""
            gone = f", {self._tombstones} of them without entries" if self._tombstones else ""
            say(
                f"{self._verb} {self._moved} runs{gone}, {self._entries} entries{there}; "
                f"left out {len(self._left_out)}",
                error=True,
            )
            if self._open:
                say(_CARRY_ON.format(count=len(self._open)), error=True)
            say(_NO_VALUES, error=True)
        return self._code()

    def _take(self, one: Moved) -> None:
        if one.error is not None:
            self._left_out.append(one)
            place = f" of scope {one.scope!r}" if one.scope else ""
            say(f"left out {one.run!r}{place}: {one_line(str(one.error))}", error=True)
            return
        self._moved += one.outcome == "copied"
        self._there += one.outcome == "there"
        self._entries += one.entries if one.outcome == "copied" else 0
        self._tombstones += one.tombstone and one.outcome == "copied"
        if not one.ended:
            self._open.append(one)

    def _code(self) -> int:
        kinds = {type(one.error) for one in self._left_out}
        return NOT_FOUND if kinds == {RunNotFound} else FAILED if kinds else OK

    def _as_json(self, source: str, destination: str) -> dict[str, JSON]:
        return {
            "source": source,
            "destination": destination,
            self._verb: self._moved,
            "already_there": self._there,
            "entries": self._entries,
            "tombstones": self._tombstones,
            "not_ended": [{"scope": one.scope, "run": one.run} for one in self._open],
            "left_out": [
                {
                    "scope": one.scope,
                    "run": one.run,
                    "error": type(one.error).__name__,
                    "message": str(one.error),
                    "line": getattr(one.error, "line", None),
                }
                for one in self._left_out
            ],
        }


@contextmanager
def _opened(file: str) -> Iterator[Iterator[bytes]]:
    """The lines of a file, or of standard input; none is read further than a line may be long."""
    if file == "-":
        yield _lines(sys.stdin.buffer)
        return
    try:
        with Path(file).open("rb") as opened:
            yield _lines(opened)
    except OSError as exc:
        raise InvalidStoreUrl(f"the file {file!r} cannot be read ({exc.strerror})") from exc


def _lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.readline(MAX_LINE_BYTES), b"")


@contextmanager
def _written(output: str | None) -> Iterator[Callable[[bytes], object]]:
    """Where lines go. A file has its name only when it is whole and on the disk."""
    if output is None:
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    target = Path(output)
    if target.is_dir():
        raise StoreUnreachable(f"{output!r} is a folder; name a file in it")
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as exc:
        raise StoreUnreachable(f"{output!r} cannot be written ({exc.strerror})") from exc
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(target)
    except OSError as exc:
        with suppress(OSError):
            Path(draft).unlink()
        raise StoreUnreachable(f"{output!r} cannot be written ({exc.strerror})") from exc
    except BaseException:
        with suppress(OSError):
            Path(draft).unlink()
        raise
