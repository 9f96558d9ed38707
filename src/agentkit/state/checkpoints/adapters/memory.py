"""A store in this process's memory: the contract of the durable ones, gone with the process."""

from __future__ import annotations

import copy
import itertools
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from agentkit.core.contracts.heads import (
    TERMINAL_STATUSES,
    Claimable,
    Head,
    Lease,
    Renewal,
    Row,
    RunStatus,
    RunSummary,
    Summary,
)
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._store_clock import Expiry, StoreClock
from agentkit.state.checkpoints.slots_mixin import SlotMethods

__all__ = ["InMemoryCheckpointStore"]

_numbers = itertools.count(1)


class InMemoryCheckpointStore(SlotMethods):
    """Journals in memory, for tests and for runs that need not outlive the process.

    Everything that `JournalPort` promises, but for durability. Two objects never share data.

    Args:
        clock: what leases and epochs are judged by; the machine's own clocks if `None`.
    """

    def __init__(self, *, clock: ClockPort | None = None) -> None:
        self._data = _Data(StoreClock(clock))
        self._scope = ""

    @property
    def location(self) -> str:
        """`memory://` and a name that no other object has."""
        return f"memory://{os.getpid()}-{self._data.number}"

    def scoped(self, scope: Scope) -> InMemoryCheckpointStore:
        """The same data, looking at another scope."""
        view = copy.copy(self)
        view._scope = scope.key  # noqa: SLF001 (a copy of our own)
        return view

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """Take the lease, creating the head where there is none; see `JournalPort.acquire`."""
        check_id(run)
        check_id(owner, what="owner")
        rules.check_numbers(supersede, above)
        ttl_seconds = rules.lasting(ttl_seconds)
        with self._data.lock:
            return self._data.acquire(
                (self._scope, run), owner, ttl_seconds, supersede=supersede, above=above
            )

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """Extend these leases; see `JournalPort.renew`."""
        with self._data.lock:
            return {key: self._data.renew(lease) for key, lease in leases.items()}

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """Append `rows` and move the head; see `JournalPort.append`."""
        check_id(run)
        rules.check_append(run, rows, after=after, lease=lease, scope=self._scope, release=release)
        with self._data.lock:
            return self._data.append(
                (self._scope, run),
                rows,
                after=after,
                lease=lease,
                summary=summary,
                release=release,
            )

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """The rows with seq > `after`, at most `limit`; see `JournalPort.read`."""
        check_id(run)
        after, limit = rules.counted(after), rules.counted(limit)
        with self._data.lock:
            kept = self._data.runs.get((self._scope, run))
            return kept.rows[after : after + limit] if kept else []

    async def head(self, run: str) -> Head | None:
        """The head, or `None`; see `JournalPort.head`."""
        check_id(run)
        with self._data.lock:
            kept = self._data.runs.get((self._scope, run))
            return self._data.shown(kept) if kept else None

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[RunSummary], str]:
        """One page of this scope's runs; see `JournalPort.list_runs`."""
        limit = rules.counted(limit)
        behind = rules.from_cursor(cursor)
        with self._data.lock:
            heads = [
                self._data.shown(kept)
                for (scope, _), kept in self._data.runs.items()
                if scope == self._scope and kept.head.seq
            ]
        found = sorted(
            (-head.summary.started_at, head.run, head, head.summary)
            for head in heads
            if head.summary is not None
            and status in {None, head.summary.status}
            and agent in {None, head.summary.agent}
        )
        if behind is not None:
            found = [item for item in found if item[:2] > (-behind[0], behind[1])]
        page = [
            RunSummary(head.run, summary, head.seq, head.epoch, head.owner, head.held)
            for _, _, head, summary in found[:limit]
        ]
        more = page and len(found) > len(page)
        return page, rules.to_cursor(page[-1].summary.started_at, page[-1].run) if more else ""

    async def claimable(
        self, *, agents: Collection[str] | None = None, limit: int = 100
    ) -> list[Claimable]:
        """Runs of all scopes that are due; see `JournalPort.claimable`."""
        limit = rules.counted(limit)
        with self._data.lock:
            now_ms = self._data.clock.wall_ms()
            heads = [(at[0], self._data.shown(kept)) for at, kept in self._data.runs.items()]
        due = [rules.claimable(scope, head, now_ms=now_ms) for scope, head in heads]
        wanted = [one for one in due if one and (agents is None or one.agent in agents)]
        return sorted(wanted, key=rules.claim_order)[:limit]

    async def delete_run(self, run: str) -> bool:
        """Remove the run; see `JournalPort.delete_run`."""
        check_id(run)
        with self._data.lock:
            return self._data.delete((self._scope, run))

    async def entomb(self, run: str, *, updated_at: int) -> bool:
        """Remove an ended run's entries; see `JournalPort.entomb`."""
        check_id(run)
        rules.check_numbers(updated_at)
        with self._data.lock:
            return self._data.entomb((self._scope, run), updated_at)

    async def scopes(self, *, after: str | None = None, limit: int = 100) -> list[str]:
        """Keys of the scopes that hold runs; see `JournalPort.scopes`."""
        limit = rules.counted(limit)
        with self._data.lock:
            held = {scope for (scope, _), kept in self._data.runs.items() if kept.head.seq}
        return sorted(key for key in held if after is None or key > after)[:limit]

    @property
    def keeps_values(self) -> bool:
        """Always; see `OncePort`."""
        return True

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Claim `key`, unless it is claimed; see `OncePort.claim_value`."""
        check_id(key, what="key")
        ttl_seconds = rules.lasting(ttl_seconds)
        with self._data.lock:
            return self._data.claim_value((self._scope, key), token, ttl_seconds)

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Keep the value of one's own claim; see `OncePort.settle_value`."""
        check_id(key, what="key")
        with self._data.lock:
            return self._data.settle_value((self._scope, key), token, value)

    def restore(self, head: Head, rows: Sequence[Row]) -> None:
        """Put a run in as it was kept elsewhere, over what is here; its lease has lapsed."""
        with self._data.lock:
            kept = _Run(head, list(rows), self._data.clock.elapsed_ms())
            self._data.runs[self._scope, head.run] = kept

    async def aclose(self) -> None:
        """Nothing to close; the data stays for as long as the object does."""


@dataclass
class _Run:
    """A head and its rows. `head.expires_in_seconds` is kept in `expires_ms` instead.

    `claims`: over unreleased leases since a lease holder last appended.
    """

    head: Head
    rows: list[Row] = field(default_factory=list)
    expires_ms: int = 0
    claims: int = 0


class _Value(NamedTuple):
    token: str
    value: str | None
    expiry: Expiry


class _Data:
    """What the views of one store share. Callers hold `lock`."""

    def __init__(self, clock: StoreClock) -> None:
        self.clock = clock
        self.number = next(_numbers)
        self.lock = threading.Lock()
        self.runs: dict[tuple[str, str], _Run] = {}
        self.values: dict[tuple[str, str], _Value] = {}
        self.forgotten = 0

    def shown(self, kept: _Run) -> Head:
        """The head as of now."""
        head = kept.head
        if not head.owner:
            return head
        left = (kept.expires_ms - self.clock.elapsed_ms()) / 1000
        return msgspec.structs.replace(head, expires_in_seconds=left)

    def acquire(
        self,
        key: tuple[str, str],
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None,
        above: int,
    ) -> Lease:
        kept = self.runs.get(key) or _Run(Head(key[1]))
        old = self.shown(kept)
        if not rules.may_acquire(old, supersede):
            raise rules.in_use(key[1], old)
        epoch = rules.next_epoch(
            old.epoch or self.forgotten, wall_ms=self.clock.wall_ms(), above=above
        )
        kept.claims += bool(old.owner)
        kept.head = msgspec.structs.replace(
            kept.head, epoch=epoch, owner=owner, recoveries=old.recoveries + bool(old.owner)
        )
        kept.expires_ms = self.clock.elapsed_ms() + round(ttl_seconds * 1000)
        self.runs[key] = kept
        return Lease(
            run=key[1],
            owner=owner,
            epoch=epoch,
            ttl_seconds=ttl_seconds,
            head=self.shown(kept),
            took_over=rules.took_over(old),
            scope=key[0],
        )

    def renew(self, lease: Lease) -> Renewal:
        kept = self.runs.get((lease.scope, lease.run))
        if kept is None:
            return Renewal(0, lost=True)
        if not rules.owns(lease, kept.head):
            return Renewal(kept.head.seq, lost=True)
        kept.expires_ms = self.clock.elapsed_ms() + round(lease.ttl_seconds * 1000)
        return Renewal(kept.head.seq)

    def append(
        self,
        key: tuple[str, str],
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool,
    ) -> Head:
        kept = self.runs.get(key)
        head = kept.head if kept else None
        if kept is not None and _repeats(kept, rows, after, lease):
            if release and lease is not None and rules.owns(lease, kept.head):
                kept.head = msgspec.structs.replace(kept.head, owner="")
            return self.shown(kept)
        if not _takes(head, after, lease):
            raise rules.refusal(key[1], head=head, lease=lease, after=after)
        kept = kept or self.runs.setdefault(key, _Run(Head(key[1])))
        kept.rows.extend(rows)
        kept.claims = kept.claims if lease is None else 0
        kept.head = msgspec.structs.replace(
            kept.head,
            seq=after + len(rows),
            check=rows[-1].check if rows else kept.head.check,
            owner="" if release else kept.head.owner,
            recoveries=summary.recoveries + kept.claims,
            summary=summary if after + len(rows) else None,
        )
        return self.shown(kept)

    def delete(self, key: tuple[str, str]) -> bool:
        kept = self.runs.get(key)
        if kept is None:
            return False
        head = self.shown(kept)
        if head.held:
            raise rules.in_use(key[1], head)
        self.forgotten = max(self.forgotten, head.epoch)
        del self.runs[key]
        return True

    def entomb(self, key: tuple[str, str], updated_at: int) -> bool:
        kept = self.runs.get(key)
        if kept is None or not rules.may_entomb(self.shown(kept), updated_at=updated_at):
            return False
        kept.rows.clear()
        kept.head = msgspec.structs.replace(kept.head, check=b"")
        return True

    def claim_value(self, key: tuple[str, str], token: str, ttl_seconds: float) -> Claim:
        found = self.values.get(key)
        if found is not None and not self.clock.has_lapsed(found.expiry):
            return rules.claimed_by(found.token, found.value, token)
        kept = self.values.items()
        self.values = {at: one for at, one in kept if not self.clock.has_lapsed(one.expiry)}
        self.values[key] = _Value(token, None, self.clock.expiry(ttl_seconds))
        return Claim("ours")

    def settle_value(self, key: tuple[str, str], token: str, value: str) -> bool:
        found = self.values.get(key)
        if found is None or found.token != token or self.clock.has_lapsed(found.expiry):
            return False
        self.values[key] = found._replace(value=value)
        return True


def _repeats(kept: _Run, rows: Sequence[Row], after: int, lease: Lease | None) -> bool:
    if not rows:
        return rules.released_already(lease, kept.head, rows)
    return kept.head.seq > after and kept.rows[after : after + len(rows)] == list(rows)


def _takes(head: Head | None, after: int, lease: Lease | None) -> bool:
    if head is None:
        return lease is None and after == 0
    if lease is not None:
        return rules.owns(lease, head) and head.seq == after
    return head.seq == after and (
        head.summary is None or head.summary.status not in TERMINAL_STATUSES
    )
