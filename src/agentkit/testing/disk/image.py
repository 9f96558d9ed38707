"""What a disk holds: now, after a process died, and in every way after the power failed.

The model is the one that SQLite's own documents assume (https://sqlite.org/atomiccommit.html), at
its harsher end:

- A sync makes all earlier writes and truncations of that file durable, and does not lie.
- What a file got since its last sync may reach the disk or not, piece by piece, in any order: a
  write is split at sectors of 512 bytes, and each of its pieces is there whole or not at all. A
  write does not touch bytes beside it ("powersafe overwrite", which SQLite assumes on Unix).
- A file may have grown without its bytes: a sector of which nothing was written then holds zeros,
  noise, or what a deleted file left there. The rest of a sector that was written holds zeros.
- Names are durable once the folder is synced, which happens with the first sync of a journal or
  log that SQLite itself created, and with a deletion that asks for it. Until then each name stands
  at any of its stages since, independent of other names.
- The `-shm` file is memory: it is gone, or holds noise.
"""

from __future__ import annotations

import random  # noqa: TID251 - seeded: a case can be repeated
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias, assert_never

__all__ = [
    "SECTOR_BYTES",
    "Acknowledged",
    "Begun",
    "Created",
    "Deleted",
    "Disk",
    "Event",
    "Files",
    "Forgotten",
    "Synced",
    "Told",
    "Truncated",
    "Wrote",
]

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""

Files: TypeAlias = Mapping[str, bytes]
"""Contents by name."""


class Created(NamedTuple):
    """A name for a new, empty file."""

    name: str
    file: int


class Deleted(NamedTuple):
    """A name that goes; `folder`: its folder was synced at once."""

    name: str
    folder: bool


class Wrote(NamedTuple):
    """Bytes for a file."""

    file: int
    offset: int
    data: bytes


class Truncated(NamedTuple):
    """A new length of a file."""

    file: int
    size: int


class Synced(NamedTuple):
    """A file's sync that has returned; `folder`: with that of its folder."""

    file: int
    folder: bool


class Begun(NamedTuple):
    """From here on the store may be found in `state`."""

    state: int


class Acknowledged(NamedTuple):
    """From here on nothing before `state` may be found: somebody was told, or has seen it."""

    state: int


class Told(NamedTuple):
    """From here on entry `seq` of `run`, with this checksum, must be found."""

    run: str
    seq: int
    check: bytes


class Forgotten(NamedTuple):
    """From here on `run` may be gone: its deletion was asked for."""

    run: str


Event: TypeAlias = (
    Created | Deleted | Wrote | Truncated | Synced | Begun | Acknowledged | Told | Forgotten
)
"""What a recording is made of, in order."""

_Change: TypeAlias = Wrote | Truncated


class _File:
    """A file: its durable bytes, its bytes as processes see them, and what lies between."""

    def __init__(self) -> None:
        self.durable = b""
        self.seen = bytearray()
        self.pending: list[_Change] = []


class Disk:
    """The files of one folder, as the events so far left them.

    Attributes:
        begun: newest state that may be found.
        acknowledged: oldest state that may be found.
        told: for each run the newest entry that must be found.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.acknowledged = 0
        self.told: dict[str, Told] = {}
        self._files: dict[int, _File] = {}
        self._names: dict[str, list[int | None]] = {}
        self._left = b""

    @property
    def names(self) -> dict[str, int]:
        """The names that processes see, and their files."""
        return {n: stages[-1] for n, stages in self._names.items() if stages[-1] is not None}

    def apply(self, event: Event) -> None:
        """Let the next event happen."""
        match event:
            case Created(name, file):
                self._files[file] = _File()
                self._names.setdefault(name, [None]).append(file)
            case Deleted(name, folder):
                self._left = bytes(self._files[self.names[name]].seen)
                self._names[name].append(None)
                if folder:
                    self._sync_folder()
            case Wrote(file, _, _) | Truncated(file, _):
                _change(self._files[file].seen, event)
                self._files[file].pending.append(event)
            case Synced(number, folder):
                synced = self._files[number]
                synced.durable, synced.pending = bytes(synced.seen), []
                if folder:
                    self._sync_folder()
            case Begun(state):
                self.begun = state
            case Acknowledged(state):
                self.begun = max(self.begun, state)
                self.acknowledged = state
            case Told(run, seq, _):
                if run not in self.told or seq >= self.told[run].seq:
                    self.told[run] = event
            case Forgotten(run):
                self.told.pop(run, None)
            case _:
                assert_never(event)

    def seen(self) -> dict[str, bytes]:
        """What the next process sees when all processes died and the machine did not."""
        return {name: bytes(self._files[file].seen) for name, file in self.names.items()}

    def after_power_loss(self, chance: random.Random) -> dict[str, bytes]:
        """What the next boot finds, by the dice."""
        keeps = _Keeping(chance)
        found: dict[str, int] = {}
        for name, stages in sorted(self._names.items()):
            file = stages[keeps.stage(len(stages))]
            if file is not None:
                found[name] = file
        numbers = sorted(set(found.values()))
        pieces = [(n, piece) for n in numbers for piece in _pieces(self._files[n].pending)]
        kept = keeps.which(len(pieces))
        fill = _Fill(chance, self._left)
        contents = {}
        for number in numbers:
            mine = [(p, k) for (n, p), k in zip(pieces, kept, strict=True) if n == number]
            contents[number] = _rebuilt(self._files[number].durable, mine, fill)
        return {name: contents[number] for name, number in found.items()}

    def _sync_folder(self) -> None:
        self._names = {name: stages[-1:] for name, stages in self._names.items()}


class _Keeping:
    """Which unsynced pieces reached the disk. The extremes are as likely as the middle."""

    _SHARES = (0.0, 1.0, 0.5, 0.1, 0.9)

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._style = chance.randrange(len(self._SHARES) + 3)

    def stage(self, stages: int) -> int:
        """Of a name's stages since its folder's last sync, the one that is found."""
        if self._style < 2:  # noqa: PLR2004 - nothing or all of it
            return -self._style
        return self._chance.randrange(stages)

    def which(self, pieces: int) -> list[bool]:
        """For each piece, whether it is there."""
        if self._style < len(self._SHARES):
            share = self._SHARES[self._style]
            return [self._chance.random() < share for _ in range(pieces)]
        place = self._chance.randrange(pieces + 1)
        in_order, lost_one = len(self._SHARES), len(self._SHARES) + 1
        if self._style == in_order:
            return [number < place for number in range(pieces)]
        lost = self._style == lost_one
        return [(number == place) != lost for number in range(pieces)]


class _Fill:
    """What a file holds where it grew without its bytes."""

    def __init__(self, chance: random.Random, left: bytes) -> None:
        self._chance = chance
        self._kind = chance.choice(("zeros", "noise", "left"))
        self._left = left
        self.grows = chance.random() < 0.5  # noqa: PLR2004 - as often as not

    def extend(self, content: bytearray, end: int, written: set[int]) -> None:
        """Have `content` end at `end`; `written` are numbers of sectors that are no mere gap."""
        while (at := len(content)) < end:
            size = min(end - at, SECTOR_BYTES - at % SECTOR_BYTES)
            written_to = at % SECTOR_BYTES or at // SECTOR_BYTES in written
            content += bytes(size) if written_to else self._sector(at, size)

    def _sector(self, offset: int, size: int) -> bytes:
        if self._kind == "noise":
            return self._chance.randbytes(size)
        left = self._left[offset : offset + size] if self._kind == "left" else b""
        return left.ljust(size, b"\0")


def _pieces(changes: list[_Change]) -> Iterator[_Change]:
    """Changes as a disk makes them: writes end where sectors end."""
    for change in changes:
        if isinstance(change, Truncated):
            yield change
            continue
        at, left = change.offset, change.data
        while left:
            size = min(len(left), SECTOR_BYTES - at % SECTOR_BYTES)
            yield Wrote(change.file, at, left[:size])
            at, left = at + size, left[size:]


def _rebuilt(durable: bytes, pieces: list[tuple[_Change, bool]], fill: _Fill) -> bytes:
    content = bytearray(durable)
    written = {
        piece.offset // SECTOR_BYTES for piece, kept in pieces if kept and isinstance(piece, Wrote)
    }
    for piece, kept in pieces:
        if isinstance(piece, Wrote) and (kept or fill.grows):
            fill.extend(content, piece.offset + len(piece.data), written)
        if kept:
            _change(content, piece)
    return bytes(content)


def _change(content: bytearray, change: _Change) -> None:
    if isinstance(change, Truncated):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    else:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data
