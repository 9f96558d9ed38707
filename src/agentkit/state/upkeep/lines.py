"""The export format: runs as lines of JSON that are sealed one after the other. Pure.

Each line is a JSON object whose last member is a seal over all that stands before it and over the
seal that it follows: a run's line follows the header, an entry's line the line before it, and the
end follows the last lines of all runs. So a bit that flips, a line that is moved, removed, doubled
or cut off, and a run from another file are all seen, at their place. Whoever can compute seals can
forge a file: they guard against accidents.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from agentkit.core.contracts.errors import ExportDamaged, JournalTooNew
from agentkit.core.contracts.heads import Row, Summary

__all__ = [
    "EXPORT_FORMAT",
    "MAX_LINE_BYTES",
    "EndLine",
    "EntryLine",
    "ExportReader",
    "ExportWriter",
    "ExportedRun",
    "HeaderLine",
    "RunLine",
    "damaged_at",
]

EXPORT_FORMAT = 1
"""What this release writes, and the newest that it reads."""

MAX_LINE_BYTES = 128 * 1024 * 1024
"""Longest line; the largest entry, each of whose bytes may take six in a JSON text, fits in."""

_SEAL_BYTES = 16
_PERSON = b"agentkit-export"
_SEALED = re.compile(rb'(\{.*),"seal":"([0-9a-f]{32})"\}\n', re.DOTALL)
_BEGUN = re.compile(rb'\{"kind":"agentkit_export","format":(\d{1,9}),')
_END = re.compile(rb'\{"kind":"end",')


class HeaderLine(msgspec.Struct, frozen=True, tag_field="kind", tag="agentkit_export"):
    """The first line: `format` of the file, `release` that wrote it, `made_at` in ms since the Unix
    epoch, `origin`: the password-free location of the store.
    """

    format: int
    release: str
    made_at: int
    origin: str


class RunLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="run"):
    """What a run's entries follow.

    Args:
        number: 1, 2, 3 … within the file.
        scope: key of its scope.
        run: its id.
        status: see `RunStatus`; for people, since the entries say it too.
        agent: the agent's name, for people.
        entries: how many lines with entries follow.
        epoch: of the last entry; of a tombstone, that of its head.
        check: checksum of the last entry, in hexadecimal.
        tombstone: of a run whose entries are gone, all that is left of it.
    """

    number: int
    scope: str
    run: str
    status: str
    agent: str
    entries: int
    epoch: int
    check: str = ""
    tombstone: Summary | None = None


class EntryLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="entry"):
    """One entry: its stored bytes as `body`, or as `base64` where they are no UTF-8 text, and its
    checksum in hexadecimal.
    """

    seq: int
    check: str
    body: str = ""
    base64: str = ""

    @classmethod
    def of(cls, row: Row) -> EntryLine:
        """The line of a row."""
        try:
            return cls(row.seq, row.check.hex(), body=row.body.decode())
        except UnicodeDecodeError:
            return cls(row.seq, row.check.hex(), base64=base64.b64encode(row.body).decode())

    def row(self) -> Row:
        """The row, byte for byte.

        Raises:
            ValueError: texts that no row becomes.
        """
        body = base64.b64decode(self.base64, validate=True) if self.base64 else self.body.encode()
        return Row(self.seq, body, bytes.fromhex(self.check))


class EndLine(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    """The last line: how many runs and entries the file has."""

    runs: int
    entries: int


_Line: TypeAlias = HeaderLine | RunLine | EntryLine | EndLine
_L = TypeVar("_L", HeaderLine, RunLine, EntryLine, EndLine)

_encode = msgspec.json.Encoder().encode


class ExportedRun(NamedTuple):
    """A run as it stands in a file: intact as far as the seals tell, its entries not yet read.

    `line`: the number of its first line.
    """

    head: RunLine
    rows: Sequence[Row]
    line: int


class ExportWriter:
    """Makes the lines of one file, in order: `header`, `run` for each run, `end`."""

    def __init__(self, header: HeaderLine) -> None:
        self.header, self._top = _seal(header, after="")
        self._runs = self._entries = 0
        self._over = blake2b(self._top.encode(), digest_size=_SEAL_BYTES)

    @property
    def runs(self) -> int:
        """How many runs were written."""
        return self._runs

    def run(self, head: RunLine, rows: Iterable[Row]) -> Iterator[bytes]:
        """The lines of a run; `head.number` is `runs + 1`."""
        self._runs += 1
        self._entries += head.entries
        line, seal = _seal(head, after=self._top)
        yield line
        for row in rows:
            line, seal = _seal(EntryLine.of(row), after=seal)
            yield line
        self._over.update(seal.encode())

    def end(self) -> bytes:
        """The last line."""
        return _seal(EndLine(self._runs, self._entries), after=self._over.hexdigest())[0]


class ExportReader:
    """Reads the lines of one file. Where something is wrong it says so and goes on with the next
    run that is intact.

    Args:
        lines: with their line ends.

    Raises:
        ExportDamaged: the first line is not that of an export, or not as it was written.
        JournalTooNew: a newer release wrote the file.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._number = 0
        self._pushed: list[bytes] = []
        self.header, self._top = _header(self._next() or b"")
        self._over = blake2b(self._top.encode(), digest_size=_SEAL_BYTES)
        self._runs = 0
        self._run = ""
        self._sound = True
        self._cut = False

    def __iter__(self) -> Iterator[ExportedRun | ExportDamaged]:
        """Each run that is whole, and each place where something is wrong, in order."""
        lost = False  # among the lines of a run that was given up
        while not self._cut:
            raw = self._next() or b""
            opened = _opened(raw, RunLine, after=self._top)
            if (cut := self._cut_at(raw)) is not None:
                yield cut
            elif opened is not None:
                self._run = opened.line.run
                yield from self._misplaced(opened.line)
                block = self._block(*opened)
                lost = isinstance(block, ExportDamaged)
                yield block
            elif _END.match(raw):
                yield from self._end(raw)
                return
            elif not lost:
                lost = True
                yield self._damaged("this line is changed, or out of its place")

    def _next(self) -> bytes | None:
        raw = self._pushed.pop() if self._pushed else next(self._lines, None)
        self._number += raw is not None
        return raw

    def _push(self, raw: bytes) -> None:
        self._pushed.append(raw)
        self._number -= 1

    def _cut_at(self, raw: bytes) -> ExportDamaged | None:
        """The damage, where the file ends with this line, or in it, and that is not its last one.
        A line may also be longer than is read at once; then there is more.
        """
        if raw.endswith(b"\n"):
            return None
        if raw and (more := self._next()) is not None:
            self._push(more)
            return None
        self._cut = True
        self._number += not raw
        return self._damaged("the file is cut off here")

    def _misplaced(self, head: RunLine) -> Iterator[ExportDamaged]:
        """Runs are numbered, so one that is missing, doubled or moved is seen where it is."""
        expected, self._runs = self._runs + 1, max(self._runs, head.number)
        if head.number > expected:
            yield self._damaged(f"run number {expected} should stand here, not {head.number}")
        elif head.number < expected:
            yield self._damaged(f"run number {head.number} stands here again, or too late")

    def _block(self, head: RunLine, seal: str) -> ExportedRun | ExportDamaged:
        """The lines of a run. The one that does not fit may be where the next run begins."""
        began = self._number
        rows: list[Row] = []
        for seq in range(1, head.entries + 1):
            raw = self._next() or b""
            if (cut := self._cut_at(raw)) is not None:
                return cut
            opened = _opened(raw, EntryLine, after=seal)
            if opened is None or opened.line.seq != seq:
                damage = self._damaged(f"entry {seq} should stand here, as it was written")
                self._push(raw)
                return damage
            try:
                rows.append(opened.line.row())
            except ValueError as exc:
                return self._damaged(f"entry {seq} is no stored entry ({exc})")
            seal = opened.seal
        self._over.update(seal.encode())
        return ExportedRun(head, rows, began)

    def _end(self, raw: bytes) -> Iterator[ExportDamaged]:
        """Where something was wrong before, the end cannot fit and says nothing new."""
        end = _opened(raw, EndLine, after=self._over.hexdigest())
        if self._sound and (end is None or end.line.runs != self._runs):
            yield self._damaged("the end does not fit the runs before it")
        self._run = ""
        if self._next() is not None:
            yield self._damaged("something follows the end")

    def _damaged(self, what: str) -> ExportDamaged:
        self._sound = False
        return damaged_at(self._number, what, run_id=self._run)


def damaged_at(line: int, what: str, *, run_id: str = "") -> ExportDamaged:
    """The error for a place in a file, at or behind a line of the run."""
    of_run = f", run {run_id!r}" if run_id else ""
    message = (
        f"line {line} of the export{of_run}: {what}. Take the file again from where it was made; "
        f"runs that are intact in it can be imported."
    )
    return ExportDamaged(message, run_id=run_id, line=line)


class _Opened(NamedTuple, Generic[_L]):
    """A line whose seal fits, and its seal."""

    line: _L
    seal: str


def _header(raw: bytes) -> tuple[HeaderLine, str]:
    begun = _BEGUN.match(raw)
    if begun is None:
        raise damaged_at(1, "it does not begin as an export of agentkit")
    if int(begun[1]) > EXPORT_FORMAT:
        raise JournalTooNew(
            f"the export is of format {int(begun[1])}, this release reads formats up to "
            f"{EXPORT_FORMAT}. Nothing was imported. Upgrade arc-agentkit to read it."
        )
    opened = _opened(raw, HeaderLine, after="")
    if opened is None:
        raise damaged_at(1, "the first line is changed")
    return opened.line, opened.seal


def _seal(line: _Line, *, after: str) -> tuple[bytes, str]:
    content = _encode(line)[:-1]
    seal = _seal_of(content, after)
    return b'%b,"seal":"%b"}\n' % (content, seal.encode()), seal


def _seal_of(content: bytes, after: str) -> str:
    digest = blake2b(after.encode(), digest_size=_SEAL_BYTES, person=_PERSON)
    digest.update(content)
    return digest.hexdigest()


def _opened(raw: bytes, kind: type[_L], *, after: str) -> _Opened[_L] | None:
    """The line, where it is of this kind and its seal fits behind `after`."""
    match = _SEALED.fullmatch(raw)
    if match is None or match[2].decode() != _seal_of(match[1], after):
        return None
    try:
        return _Opened(msgspec.json.decode(match[1] + b"}", type=kind), match[2].decode())
    except msgspec.MsgspecError:
        return None
