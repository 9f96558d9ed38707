"""Heads and rows as Redis keeps them, and the names of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, cast

import msgspec

from agentkit.core.contracts.errors import JournalDamaged, StoreMisused
from agentkit.core.contracts.heads import TERMINAL_STATUSES, Head, Row, RunStatus, Summary
from agentkit.core.contracts.slots import slot_of
from agentkit.core.contracts.types import Usage
from agentkit.state.checkpoints.adapters._redis_links import Reply
from agentkit.state.journal.codec import CHECK_BYTES


class Keys(NamedTuple):
    """The keys of one run. What stands in braces decides the slot, so all are in one."""

    head: str
    log: str
    epoch: str


class Found(NamedTuple):
    """What the scripts show of a head, in their order."""

    now_ms: bytes
    entries: int
    format: bytes
    seq: bytes
    check: bytes
    epoch: bytes
    owner: bytes
    expires_ms: bytes
    claims: bytes
    status: bytes
    agent: bytes
    step: bytes
    usage: bytes
    started_ms: bytes
    updated_ms: bytes
    recoveries: bytes
    detail: bytes
    due_ms: bytes
    server: bytes
    replid: bytes
    restartable: bytes
    in_doubt: bytes


class _Readable(msgspec.Struct, frozen=True):
    """Of the summary's detail what is shown to people."""

    task: str = ""
    pending: tuple[str, ...] = ()
    completed: int = 0


def run_keys(prefix: str, scope: str, run: str) -> Keys:
    """The keys of a run; no two runs of any scopes have the same."""
    tag = f"{{{tag_of(scope, run)}}}"
    return Keys(f"{prefix}:checkpoint:{tag}", f"{prefix}:log:{tag}", f"{prefix}:epoch:{tag}")


def tag_of(scope: str, name: str) -> str:
    """Scope and name as one; neither holds an unescaped colon or brace afterwards."""
    return f"{slot_of(scope, '')}:{slot_of(name, '')}" if scope else slot_of(name, "")


def fields_of(summary: Summary) -> list[str | bytes]:
    """Names and values of a head's fields for this summary, one after the other."""
    shown = _readable(summary.detail)
    fields: dict[str, str | bytes] = {
        "status": summary.status,
        "task": shown.task,
        "step": str(summary.iteration),
        "pending": ", ".join(shown.pending),
        "completed": str(shown.completed),
        "in_doubt": ", ".join(summary.in_doubt),
        "created": _time(summary.started_at),
        "updated": _time(summary.updated_at),
        "agent": summary.agent,
        "usage": msgspec.json.encode(summary.usage),
        "started_ms": str(summary.started_at),
        "updated_ms": str(summary.updated_at),
        "recoveries": str(summary.recoveries),
        "detail": summary.detail,
        "due_ms": "" if summary.due_at is None else str(summary.due_at),
    }
    return [word for field in fields.items() for word in field]


def found_in(reply: Reply) -> Found:
    """The head in a reply."""
    return Found(*cast("Sequence[bytes]", reply))  # type: ignore[arg-type]  # one is a number


def head_of(run: str, found: Found) -> Head:
    """The head that the scripts show.

    Raises:
        JournalDamaged: it is not one that we wrote.
    """
    try:
        return _head_of(run, found)
    except (ValueError, msgspec.DecodeError) as exc:
        raise JournalDamaged(
            f"run {run!r}: its head is damaged ({exc}). Nothing was written. Restore the store "
            f"from a backup.",
            run_id=run,
            seq=0,
        ) from exc


def head_after(run: str, said: Sequence[bytes], *, summary: Summary) -> Head:
    """The head that the script `append` has left, whose summary is the one that it was given."""
    now_ms, seq, check, epoch, owner, expires_ms, claims, recoveries = said
    left = (int(expires_ms) - int(now_ms)) / 1000 if owner else 0.0
    return Head(
        run,
        seq=int(seq),
        check=bytes.fromhex(check.decode()),
        epoch=int(epoch),
        owner=owner.decode(),
        expires_in_seconds=left,
        recoveries=int(claims) + int(recoveries or 0),
        summary=summary if int(seq) else None,
    )


def _head_of(run: str, found: Found) -> Head:
    seq, owner = int(found.seq), found.owner.decode()
    expires = (int(found.expires_ms) - int(found.now_ms)) / 1000 if owner else 0.0
    summary = _summary_of(found) if seq else None
    return Head(
        run,
        seq=seq,
        check=bytes.fromhex(found.check.decode()) if found.entries else b"",
        epoch=int(found.epoch),
        owner=owner,
        expires_in_seconds=expires,
        recoveries=int(found.claims) + int(found.recoveries or 0),
        summary=summary,
    )


def _summary_of(found: Found) -> Summary:
    status = found.status.decode()
    if status not in _STATUSES:
        raise ValueError(f"{status!r} is no status")
    return Summary(
        status=cast("RunStatus", status),
        agent=found.agent.decode(),
        iteration=int(found.step),
        usage=msgspec.json.decode(found.usage, type=Usage),
        started_at=int(found.started_ms),
        updated_at=int(found.updated_ms),
        recoveries=int(found.recoveries),
        detail=found.detail,
        due_at=int(found.due_ms) if found.due_ms else None,
    )


def element_of(run: str, row: Row) -> bytes:
    """A row as an element of the log: its checksum, then its bytes. Its number is its place.

    Raises:
        StoreMisused: the checksum has not the length of one.
    """
    if len(row.check) != CHECK_BYTES:
        raise StoreMisused(
            f"run {run!r}: the checksum of entry {row.seq} has {len(row.check)} bytes, not "
            f"{CHECK_BYTES}"
        )
    return row.check + row.body


def rows_of(run: str, after: int, elements: Reply) -> list[Row]:
    """The rows behind `after`.

    Raises:
        JournalDamaged: an element is too short to be one.
    """
    rows = []
    for seq, element in enumerate(cast("list[bytes]", elements), after + 1):
        if len(element) < CHECK_BYTES:
            raise JournalDamaged(
                f"run {run!r}: entry {seq} is damaged: it is too short. Nothing was written. "
                f"Restore the store from a backup.",
                run_id=run,
                seq=seq,
            )
        rows.append(Row(seq, element[CHECK_BYTES:], element[:CHECK_BYTES]))
    return rows


def _readable(detail: bytes) -> _Readable:
    try:
        return msgspec.json.decode(detail, type=_Readable)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Readable()


def _time(ms: int) -> str:
    if not ms:
        return ""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return ""


_STATUSES = TERMINAL_STATUSES | {"submitted", "running", "suspended", "parked", "saved"}
