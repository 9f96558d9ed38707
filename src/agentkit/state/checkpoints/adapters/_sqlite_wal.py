"""Reading a write-ahead log without SQLite, to tell a torn tail from damage in the middle.

SQLite itself ends its replay at the first frame that does not fit and forgets what comes after.
For the tail of a transaction that was being written this is right: nobody was told that it is
durable. But when a later transaction is there, the one with the bad frame was durable before that
one began, and forgetting it would lose entries that were acknowledged. Format:
https://sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
_MASK = 0xFFFFFFFF
_PAGE_SIZES = {1 << power for power in range(9, 17)}

Sums = tuple[int, int]


class Log(NamedTuple):
    """What a write-ahead log holds.

    Args:
        first_page: the first page of the database as of the last transaction that is intact.
        bad_frame: number of the first frame that does not fit, 0 for none.
        damaged: whether a later transaction proves that the bad frame had been durable.
        salts: of the log's header; a log that starts again has other ones.
    """

    first_page: bytes = b""
    bad_frame: int = 0
    damaged: bool = False
    salts: tuple[int, int] = (0, 0)


class _Frame(NamedTuple):
    page: int
    commit: bool
    salts: tuple[int, int]
    stored: Sums
    head: bytes
    data: bytes

    def sums(self, seed: Sums, order: str) -> Sums:
        return _checksum(self.data, _checksum(self.head, seed, order), order)


def read_log(path: Path, *, page_size: int) -> Log:
    """Scan the log at `path`; it may be missing, empty, or written to at this moment.

    A verdict about a log in use can be an artefact of reading while another process writes, so
    damage is reported only when two scans in a row agree.

    Args:
        path: the `-wal` file.
        page_size: of the database, for a log whose own header is unreadable.
    """
    log = _scan(path, page_size)
    while log.damaged:
        again = _scan(path, page_size)
        if again == log:
            break
        log = again
    return log


def _scan(path: Path, page_size: int) -> Log:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return Log()
    with file:
        raw = file.read(_HEADER.size)
        if len(raw) < _HEADER.size:
            return Log()
        magic, _, size, _, salt1, salt2, sum1, sum2 = _HEADER.unpack(raw)
        order = _MAGIC.get(magic, "")
        if order and size in _PAGE_SIZES and _checksum(raw[:24], (0, 0), order) == (sum1, sum2):
            return _follow(_frames(file, size), (salt1, salt2), (sum1, sum2), order)
        return _without_header(_frames(file, page_size), raw)


def _follow(frames: Iterator[_Frame], salts: tuple[int, int], seed: Sums, order: str) -> Log:
    """Follow the chain as SQLite does; behind its first break look for a later transaction."""
    first_page = pending = b""
    for number, frame in enumerate(frames, 1):
        sums = frame.sums(seed, order)
        if not frame.page or frame.salts != salts or sums != frame.stored:
            seeds = {frame.stored, sums}
            ended = _ended(frame, salts, seed, order)
            damaged = _continues(frames, salts, seeds, order, ended=ended)
            return Log(first_page, number, damaged, salts)
        seed = sums
        if frame.page == 1:
            pending = frame.data
        if frame.commit:
            first_page = pending
    return Log(first_page, 0, damaged=False, salts=salts)


def _ended(frame: _Frame, salts: tuple[int, int], seed: Sums, order: str) -> bool:
    """Whether the bad frame was the last of its transaction, by what is left of it.

    Its first 8 bytes say so. When the log was started again and the power failed, they may be those
    of an older frame: a header that lies in two sectors of the disk was then written in part. The
    checksum behind them tells what they should be.
    """
    if not frame.commit or not set(frame.salts) & set(salts):
        return False
    first, second = _undone(frame.data, frame.stored, order)
    return (second - seed[1] - first) & _MASK != 0


def _continues(
    frames: Iterator[_Frame],
    salts: tuple[int, int],
    seeds: set[Sums],
    order: str,
    *,
    ended: bool,
) -> bool:
    """Whether a transaction later than that of the bad frame was committed.

    A frame behind the bad one is known to be of this log when it follows from the checksum that
    its predecessor carries, or should have carried. `ended` says that the bad frame was the last
    of its transaction; else one commit only closes it, and the next one is the proof.
    """
    for frame in frames:
        known = frame.salts == salts and any(
            frame.commit and frame.sums(seed, order) == frame.stored for seed in seeds
        )
        if known and ended:
            return True
        ended = ended or known
        seeds = {frame.stored}
    return False


def _without_header(frames: Iterator[_Frame], raw: bytes) -> Log:
    """A log whose header does not fit is empty for SQLite; any commit in it proves damage.

    The header fills a part of one disk sector and is synced before the first frame is written,
    so it is never torn.
    """
    *_, salt1, salt2, sum1, sum2 = _HEADER.unpack(raw)
    orders = tuple(_MAGIC.values())
    seeds = {(sum1, sum2), *(_checksum(raw[:24], (0, 0), order) for order in orders)}
    for frame in frames:
        if frame.commit and any(
            frame.sums(seed, order) == frame.stored for seed in seeds for order in orders
        ):
            return Log(b"", 1, damaged=True, salts=(salt1, salt2))
        seeds = {frame.stored}
    return Log(salts=(salt1, salt2))


def _frames(file: BinaryIO, page_size: int) -> Iterator[_Frame]:
    """All frames that are there in full."""
    size = _FRAME.size + page_size
    while len(raw := file.read(size)) == size:
        page, pages, salt1, salt2, sum1, sum2 = _FRAME.unpack_from(raw)
        data = raw[_FRAME.size :]
        yield _Frame(page, pages > 0, (salt1, salt2), (sum1, sum2), raw[:8], data)


def _checksum(data: bytes, seed: Sums, order: str) -> Sums:
    """The cumulative checksum of a write-ahead log over `data`, in the log's byte order."""
    first, second = seed
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _MASK
        second = (second + odd + first) & _MASK
    return first, second


def _undone(data: bytes, sums: Sums, order: str) -> Sums:
    """What the checksum was before `data`."""
    first, second = sums
    words = reversed(struct.unpack(f"{order}{len(data) // 4}I", data))
    for odd, even in zip(words, words, strict=True):
        second = (second - odd - first) & _MASK
        first = (first - even - second) & _MASK
    return first, second
