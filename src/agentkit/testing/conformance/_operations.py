"""Random operations on a store, and answers that can be compared between stores."""

from __future__ import annotations

from random import Random  # noqa: TID251 - seeded: a sequence can be repeated
from typing import Literal, TypeAlias

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.heads import Head, Lease, RunStatus, RunSummary
from agentkit.core.contracts.once import keeps_values
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.testing.conformance.materials import TTL_SECONDS, rows, summary

__all__ = ["Operation", "Player", "sequence"]

Kind: TypeAlias = Literal[
    "acquire",
    "append",
    "repeat",
    "renew",
    "read",
    "list",
    "pages",
    "due",
    "delete",
    "entomb",
    "claim",
    "settle",
    "pass",
]

_WEIGHTS: dict[Kind, int] = {
    "acquire": 14,
    "append": 40,
    "repeat": 8,
    "renew": 4,
    "read": 6,
    "list": 6,
    "pages": 3,
    "due": 2,
    "delete": 4,
    "entomb": 5,
    "claim": 4,
    "settle": 3,
    "pass": 3,
}
_FOR_EVER = 10_000_000.0
_STATUSES: tuple[RunStatus, ...] = ("running", "suspended", "parked", "done", "failed", "saved")


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call. What depends on a store's state is said relative to it.

    Args:
        kind: of the call.
        run: or the key of a value.
        name: the owner, or the token of a value.
        lease: `newest` or `older` one that was got for the run, or `none`.
        shift: of `after`, from the run's end.
        count: of rows; also a limit.
        text: of the rows, or the value.
        status: of the summary; a filter of lists.
        at: the summary's times; seconds that pass; which epoch is superseded or asked for.
        release: whether an append releases.
    """

    kind: Kind
    run: str = ""
    name: str = ""
    lease: Literal["newest", "older", "none"] = "newest"
    shift: int = 0
    count: int = 1
    text: str = ""
    status: RunStatus = "running"
    at: int = 0
    release: bool = False


def sequence(random: Random, length: int, *, without: frozenset[str]) -> list[Operation]:
    """Random operations over a few runs, so that they meet; of no kind in `without`."""
    kinds = [kind for kind in _WEIGHTS if kind not in without]
    weights = [_WEIGHTS[kind] for kind in kinds]
    return [_operation(random, random.choices(kinds, weights)[0]) for _ in range(length)]


def _operation(random: Random, kind: Kind) -> Operation:
    lease: Literal["newest", "older", "none"] = "newest"
    if random.random() < 0.3:  # noqa: PLR2004 - a share
        lease = random.choice(["older", "none"])
    return Operation(
        kind,
        run=random.choice("abc"),
        name=random.choice(["w", "x"]),
        lease=lease,
        shift=random.choice([0] * 12 + [-2, -1, 1]),
        count=random.choice([0, 1, 1, 1, 2, 3]),
        text=random.choice(["fact", "other"]),
        status=random.choice(_STATUSES[:1] * 6 + _STATUSES),
        at=random.randrange(4),
        release=random.random() < 0.15,  # noqa: PLR2004 - a share
    )


class Player:
    """Plays operations on a store, through one handle after the other if there are more.

    Its answers tell epochs by their order, not their numbers.
    """

    def __init__(self, store: JournalPort, scope: Scope, *others: JournalPort) -> None:
        self._views = [one.scoped(scope) for one in (store, *others)]
        self._store = self._views[0]
        self._scope = scope.key
        self._leases: dict[str, list[Lease]] = {}
        self._epochs: dict[tuple[str, int], str] = {}
        self._last = Operation("append", run="a")
        self._last_after = 0
        self._last_lease: Lease | None = None

    async def play(self, operation: Operation) -> object:
        """What the store answers; of an error its type."""
        self._views.append(self._views.pop(0))
        self._store = self._views[0]
        try:
            return await self._answer(operation)
        except AgentkitError as exc:
            return type(exc).__name__

    async def _answer(self, op: Operation) -> object:
        match op.kind:
            case "acquire":
                return await self._acquire(op)
            case "append":
                return await self._append(op)
            case "repeat":
                return await self._send(self._last, self._last_after, self._last_lease)
            case "renew":
                held = {
                    f"{run}{n}": one
                    for run in self._leases
                    for n, one in enumerate(self._leases[run])
                }
                renewed = self._store.renew(held)
                return sorted((key, one.seq, one.lost) for key, one in renewed.items())
            case "read":
                return await self._store.read(op.run, after=op.at, limit=op.count + 1)
            case "list":
                status = op.status if op.at else None
                page, _ = await self._store.list_runs(status=status)
                return [self._listed(one) for one in page]
            case "pages":
                return await self._pages(op.count + 1)
            case "due":
                return [
                    one
                    for one in await self._store.claimable(limit=10_000)
                    if one.scope == self._scope
                ]
            case "delete":
                return await self._store.delete_run(op.run)
            case "entomb":
                return await self._store.entomb(op.run, updated_at=op.at)
            case _:
                return await self._value(op)

    async def _acquire(self, op: Operation) -> object:
        head = await self._store.head(op.run)
        epoch = head.epoch if head else 0
        supersede = {0: None, 1: epoch, 2: epoch - 1, 3: epoch}[op.at]
        lease = await self._store.acquire(
            op.run, op.name, TTL_SECONDS, supersede=supersede, above=epoch + op.count * 1_000
        )
        grown = lease.epoch > epoch
        got = self._leases.setdefault(op.run, [])
        got.append(lease)
        self._epochs[op.run, lease.epoch] = f"epoch {len(got)}"
        return (lease.run, lease.owner, lease.took_over, grown, self._head(lease.head))

    async def _append(self, op: Operation) -> object:
        head = await self._store.head(op.run)
        if head is not None and head.tombstone:
            return "left alone"  # what a lease holder may append to one, no law says
        after = max((head.seq if head else 0) + op.shift, 0)
        got = self._leases.get(op.run, [])
        lease = {"none": None, "newest": got[-1] if got else None, "older": got[0] if got else None}
        self._last, self._last_after, self._last_lease = op, after, lease[op.lease]
        return await self._send(op, after, lease[op.lease])

    async def _send(self, op: Operation, after: int, lease: Lease | None) -> object:
        made = msgspec.structs.replace(
            summary(op.status, agent=op.name, started_at=op.at, updated_at=op.at),
            recoveries=op.at,
            due_at=op.at or None,
        )
        given = rows(after + 1, op.count, op.text)
        head = await self._store.append(
            op.run, given, after=after, lease=lease, summary=made, release=op.release
        )
        return (self._head(head), self._head(await self._store.head(op.run)))

    async def _pages(self, limit: int) -> object:
        pages: list[object] = []
        cursor = ""
        while cursor or not pages:
            page, cursor = await self._store.list_runs(limit=limit, cursor=cursor)
            pages.append([self._listed(one) for one in page])
        return pages

    async def _value(self, op: Operation) -> object:
        port = keeps_values(self._store)
        if port is None:
            return None
        if op.kind == "claim":
            claim = await port.claim_value(op.run, token=op.name, ttl_seconds=_FOR_EVER)
            return (claim.state, claim.value)
        return await port.settle_value(op.run, token=op.name, value=op.text)

    def _head(self, head: Head | None) -> object:
        if head is None:
            return None
        return (
            head.run,
            head.seq,
            head.check,
            self._epoch(head.run, head.epoch),
            head.owner,
            head.held,
            head.recoveries,
            head.summary,
        )

    def _listed(self, one: RunSummary) -> object:
        epoch = self._epoch(one.run, one.epoch)
        return (one.run, one.seq, epoch, one.owner, one.live, one.summary)

    def _epoch(self, run: str, epoch: int) -> str:
        return self._epochs.get(
            (run, epoch), "no epoch" if not epoch else f"epoch {epoch}, which no lease had"
        )
