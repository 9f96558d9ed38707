"""Entries to stored bytes and back, with a chained checksum.

The checksum of a row covers its bytes and the checksum before it, so an edited, moved, removed or
truncated row is seen at its position by every reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from agentkit.core.contracts.entries import Entry
from agentkit.core.contracts.errors import EntryTooLarge, JournalDamaged, JournalTooNew
from agentkit.core.contracts.heads import Row

__all__ = ["CHECK_BYTES", "MAX_ENTRY_BYTES", "checksum", "damaged", "decode_rows", "encode_entry"]

MAX_ENTRY_BYTES = 16 * 1024 * 1024
"""Largest entry, in stored bytes."""

CHECK_BYTES = 8
"""Length of a row's checksum."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


def checksum(before: bytes, body: bytes) -> bytes:
    """Checksum of a row whose predecessor's checksum is `before` (`b""` for the first)."""
    return blake2b(before + body, digest_size=CHECK_BYTES).digest()


def encode_entry(entry: Entry, *, before: bytes, run_id: str) -> Row:
    """The row of `entry`, chained to the checksum `before`.

    Raises:
        EntryTooLarge: the encoded entry exceeds `MAX_ENTRY_BYTES`.
    """
    body = _encode(entry)
    if len(body) > MAX_ENTRY_BYTES:
        kind = type(entry.body).__name__
        message = (
            f"run {run_id!r}: a {kind} entry has {len(body)} bytes; the limit is "
            f"{MAX_ENTRY_BYTES}. Nothing was written; keep large data outside and pass a reference."
        )
        raise EntryTooLarge(message, run_id=run_id)
    return Row(entry.seq, body, checksum(before, body))


def decode_rows(
    rows: Iterable[Row], *, after: int, before: bytes, run_id: str
) -> Iterator[tuple[Entry, bytes]]:
    """Entries with their checksums, in order; `after` and `before` are those of the row before.

    Raises:
        JournalDamaged: a row is missing, changed or unreadable; `seq` tells which.
        JournalTooNew: an intact row is of a kind that this release does not know.
    """
    for row in rows:
        after += 1
        if row.seq != after:
            raise damaged(run_id, after, f"entry {after} is missing")
        before = checksum(before, row.body)
        if row.check != before:
            raise damaged(run_id, after, "its checksum does not fit")
        yield _decode_intact(row, run_id), before


def _decode_intact(row: Row, run_id: str) -> Entry:
    try:
        entry = _decode(row.body)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as exc:
        message = (
            f"run {run_id!r}: entry {row.seq} is intact but of a form that this release does not "
            f"know ({exc}); it was written by a newer one. Upgrade agentkit to read this run."
        )
        raise JournalTooNew(message) from exc
    if entry.seq != row.seq:
        raise damaged(run_id, row.seq, f"it says that it is entry {entry.seq}")
    return entry


def damaged(run_id: str, seq: int, why: str) -> JournalDamaged:
    """The error for a journal whose first bad entry is `seq`."""
    message = (
        f"run {run_id!r}: entry {seq} of its journal is damaged: {why}. Nothing falls back to an "
        f"older state, since later effects would be done again; entries before {seq} are readable."
    )
    return JournalDamaged(message, run_id=run_id, seq=seq)
