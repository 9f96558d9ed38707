"""What a journal store keeps and answers: rows, heads, summaries, leases."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from agentkit.core.contracts.types import Usage

__all__ = [
    "TERMINAL_STATUSES",
    "Claimable",
    "Head",
    "Lease",
    "Renewal",
    "Row",
    "RunStatus",
    "RunSummary",
    "Summary",
]

RunStatus: TypeAlias = Literal[
    "submitted", "running", "suspended", "parked", "done", "failed", "cancelled", "saved"
]
"""`running` means: not ended and not waiting; with a live lease somebody works on it, without one
it was interrupted. `submitted`: no worker has begun it yet. `saved`: a journal that only holds a
user's own checkpoints."""

TERMINAL_STATUSES: frozenset[str] = frozenset({"done", "failed", "cancelled"})
"""Statuses that are final: such a run takes no entry any more."""


class Row(msgspec.Struct, frozen=True):
    """One entry as a store keeps it: opaque bytes and the chained checksum.

    `body` is the encoded `Entry` (it holds seq, id and epoch itself); `check` is 8 bytes.
    """

    seq: int
    body: bytes
    check: bytes


class _Doubts(msgspec.Struct, frozen=True):
    """Of a summary's detail what a store may have to know."""

    in_doubt: tuple[str, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    """What a store answers lists and probes from, made by the fold with every append.

    Args:
        status: see `RunStatus`.
        agent: the agent's name, or what the submission says where no worker has begun it.
        iteration: completed tool turns.
        usage: what the run has used.
        started_at: ms since the Unix epoch.
        updated_at: ms since the Unix epoch.
        recoveries: takeovers without progress.
        detail: opaque JSON bytes: task, result, open questions, why it waits, `in_doubt`.
        due_at: when the run wants a worker, in ms since the Unix epoch; 0 for at once; `None` where
            only a note can move it, or nothing.
    """

    status: RunStatus
    agent: str = ""
    iteration: int = 0
    usage: Usage = Usage()
    started_at: int = 0
    updated_at: int = 0
    recoveries: int = 0
    detail: bytes = b"{}"
    due_at: int | None = None

    @property
    def in_doubt(self) -> tuple[str, ...]:
        """Names of the tools with a call that may have taken effect and that nobody has settled
        before the run ended: nothing but its entries tells of that, so no age removes them.
        """
        try:
            return msgspec.json.decode(self.detail, type=_Doubts).in_doubt
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ()


class Head(msgspec.Struct, frozen=True):
    """A run's head row.

    Args:
        seq: number of the last entry; 0 for a run that was claimed and never started.
        check: checksum of the last entry, `b""` at seq 0 and of a tombstone.
        epoch: the highest epoch ever given for this run, 0 for none.
        owner: who holds the lease; empty when it was released or never taken.
        expires_in_seconds: until the lease lapses by the store's clock; negative once lapsed;
            0.0 without an owner.
        recoveries: see `Summary.recoveries`; also counts claims that died before they wrote.
        summary: of the last append; `None` at seq 0.
    """

    run: str
    seq: int = 0
    check: bytes = b""
    epoch: int = 0
    owner: str = ""
    expires_in_seconds: float = 0.0
    recoveries: int = 0
    summary: Summary | None = None

    @property
    def held(self) -> bool:
        """Whether somebody holds an unexpired lease."""
        return bool(self.owner) and self.expires_in_seconds > 0

    @property
    def tombstone(self) -> bool:
        """Whether the run has ended and its entries are gone: the head is what stays of it."""
        return self._bare and self._ended

    @property
    def expired(self) -> bool:
        """Whether the head is there alone and the run has not ended: nobody may begin it anew."""
        return self._bare and not self._ended

    @property
    def _bare(self) -> bool:
        return self.seq > 0 and not self.check

    @property
    def _ended(self) -> bool:
        return self.summary is not None and self.summary.status in TERMINAL_STATUSES


class Lease(msgspec.Struct, frozen=True):
    """The exclusive right to act for a run. `head` is the head as it was when acquired.

    `took_over`: the previous holder had neither released nor finished. `scope`: key of the scope
    it was acquired in, so that one `renew` can serve leases of several scopes.
    """

    run: str
    owner: str
    epoch: int
    ttl_seconds: float
    head: Head
    took_over: bool = False
    scope: str = ""


class RunSummary(msgspec.Struct, frozen=True):
    """One row of `list_runs`. `live`: somebody holds an unexpired lease."""

    run: str
    summary: Summary
    seq: int
    epoch: int
    owner: str = ""
    live: bool = False


class Claimable(msgspec.Struct, frozen=True):
    """A run that wants a worker.

    Args:
        scope: key of its scope, see `Scope.of_key`.
        run: its id.
        agent: whose run it is: its name, or what the submission says where no worker has begun it.
        due_at: see `Summary.due_at`.
        owner: who held it last and did not release it; empty if nobody.
        held: whether that lease is unexpired: only who can prove the owner dead may take it.
    """

    scope: str
    run: str
    agent: str
    due_at: int
    owner: str = ""
    held: bool = False


class Renewal(msgspec.Struct, frozen=True):
    """Answer of `renew` for one run: `seq` of its head, or `lost` when a newer epoch owns it."""

    seq: int
    lost: bool = False
