"""Runs that want a worker, on Redis: a hint beside the heads, as the index is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import cast

from agentkit.core.contracts.heads import Claimable
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_heads import run_keys
from agentkit.state.checkpoints.adapters._redis_index import Clock, shown_head
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply
from agentkit.state.checkpoints.adapters._redis_plans import Steps

_BATCH = 200
_REMEMBERED = 10_000
_SEPARATOR = "\0"  # in no scope and no run id, and before all that is: members sort as they do


class RedisDue:
    """Runs of all scopes by when they want a worker.

    A run is entered before its head says that it wants one, so that a crash between the two makes
    nobody wait in vain, and goes when its head says that it does not.

    Args:
        prefix: what all keys begin with.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
    """

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._prefix = prefix
        self._clock = clock
        self._key = f"{prefix}:due"
        self._entered: OrderedDict[str, int] = OrderedDict()

    def before(self, scope: str, run: str, due_at: int | None) -> list[Call]:
        """What to do before a head says this; nothing where it is known to be done."""
        member = _member(scope, run)
        if due_at is None or self._entered.get(member) == due_at:
            return []
        return [self._enter(member, due_at)]

    def after(
        self, scope: str, run: str, due_at: int | None, *, due_before: int | None
    ) -> list[Call]:
        """What to do after a head has come to say this."""
        member = _member(scope, run)
        if due_at is None:
            self._entered.pop(member, None)
            return [Call("ZREM", (self._key,), (member,))] if due_before is not None else []
        self._entered[member] = due_at
        self._entered.move_to_end(member)
        while len(self._entered) > _REMEMBERED:
            self._entered.popitem(last=False)
        return [self._enter(member, due_at)] if due_at != due_before else []

    def gone(self, scope: str, run: str) -> list[Call]:
        """What to do after a run was deleted."""
        self._entered.pop(_member(scope, run), None)
        return [Call("ZREM", (self._key,), (_member(scope, run),))]

    def claimable(self, *, agents: Collection[str] | None, limit: int) -> Steps[list[Claimable]]:
        """See `JournalPort.claimable`."""
        found: list[Claimable] = []
        stale: list[str] = []
        offset = 0
        while limit > 0:
            due = Call("due", (self._key,), (*self._clock(), offset, _BATCH), script=True)
            (reply,) = yield [due]
            now, members = cast("tuple[bytes, list[bytes]]", reply)
            names = [member.decode() for member in members]
            wanted = yield from self._looked(names, int(now), stale)
            found += [one for one in wanted if agents is None or one.agent in agents]
            offset += len(names)
            if len(names) < _BATCH or sum(not one.held for one in found) >= limit:
                break
        if stale:
            yield from self._drop(stale)
        return sorted(found, key=rules.claim_order)[: max(limit, 0)]

    def _looked(
        self, members: Sequence[str], now_ms: int, stale: list[str]
    ) -> Steps[list[Claimable]]:
        """Which of them want a worker, as their heads say; those that do not are stale."""
        found = []
        names = [_names(member) for member in members]
        heads = yield from self._heads(names)
        for member, (scope, run), reply in zip(members, names, heads, strict=True):
            head = shown_head(run, reply)
            summary = head.summary if head else None
            if head is None or (summary is not None and summary.due_at is None):
                stale.append(member)
            elif (one := rules.claimable(scope, head, now_ms=now_ms)) is not None:
                found.append(one)
        return found

    def _heads(self, names: Sequence[tuple[str, str]]) -> Steps[Sequence[Reply]]:
        if not names:
            return []
        return (
            yield [
                Call("head", run_keys(self._prefix, scope, run)[:2], self._clock(), script=True)
                for scope, run in names
            ]
        )

    def _drop(self, members: Sequence[str]) -> Steps[None]:
        """These want no worker; one that comes to want one just now stays, as in the index."""
        yield [Call("ZREM", (self._key,), tuple(members))]
        names = [_names(member) for member in members]
        heads = yield from self._heads(names)
        back = []
        for member, (_, run), reply in zip(members, names, heads, strict=True):
            head = shown_head(run, reply)
            if head is not None and head.summary is not None and head.summary.due_at is not None:
                back.append(self._enter(member, head.summary.due_at))
        if back:
            yield back

    def _enter(self, member: str, due_at: int) -> Call:
        return Call("ZADD", (self._key,), (due_at, member))


def _member(scope: str, run: str) -> str:
    return f"{scope}{_SEPARATOR}{run}"


def _names(member: str) -> tuple[str, str]:
    scope, _, run = member.partition(_SEPARATOR)
    return scope, run
