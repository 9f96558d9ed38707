"""Runs that want a worker, on Redis: a hint beside the heads, as the index is."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew
from agentkit.core.contracts.heads import Claimable
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_heads import run_keys
from agentkit.state.checkpoints.adapters._redis_index import Clock, shown_head
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply
from agentkit.state.checkpoints.adapters._redis_plans import Steps

_log = logging.getLogger("agentkit.state")

_BATCH = 200
_REMEMBERED = 10_000
_SEPARATOR = "\0"  # in no scope and no run id, and before all that is: members sort as they do


class RedisDue:
    """Runs of all scopes by when they want a worker.

    No entry is ever later than its head says. A run is entered before its head says that it wants a
    worker, so that a crash between the two makes nobody wait in vain, and that only moves it
    forward. Who takes a run out or moves it back looks at the head again afterwards, which somebody
    else may have moved meanwhile.

    Args:
        prefix: what all keys begin with.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
    """

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._prefix = prefix
        self._clock = clock
        self._key = f"{prefix}:due"
        self._entered: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def before(
        self, scope: str, run: str, due_at: int | None, *, epoch: int | None = None
    ) -> list[Call]:
        """What to do before a head says this; nothing where it is known to be done: by the holder
        of the same lease, since when it has gone nobody knows what others did.
        """
        member = _member(scope, run)
        if due_at is None or (epoch and self._entered.get(member) == (due_at, epoch)):
            return []
        return [self._enter(member, due_at)]

    def after(
        self,
        scope: str,
        run: str,
        due_at: int | None,
        *,
        due_before: int | None,
        epoch: int | None,
    ) -> Steps[None]:
        """What to do after a head has come to say this."""
        member = _member(scope, run)
        self._entered.pop(member, None)
        if due_at is not None and epoch:
            self._entered[member] = (due_at, epoch)
            while len(self._entered) > _REMEMBERED:
                self._entered.popitem(last=False)
        if due_at == due_before:
            return
        if due_at is None or (due_before is not None and due_at > due_before):
            yield from self._settle({member: due_at})
        else:
            yield [self._enter(member, due_at)]

    def gone(self, scope: str, run: str) -> Steps[None]:
        """What to do after a run was deleted."""
        self._entered.pop(_member(scope, run), None)
        yield from self._settle({_member(scope, run): None})

    def claimable(self, *, agents: Collection[str] | None, limit: int) -> Steps[list[Claimable]]:
        """See `JournalPort.claimable`."""
        found: list[Claimable] = []
        stale: dict[str, int | None] = {}
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
            yield from self._settle(stale)
        return sorted(found, key=rules.claim_order)[: max(limit, 0)]

    def _looked(
        self, members: Sequence[str], now_ms: int, stale: dict[str, int | None]
    ) -> Steps[list[Claimable]]:
        """Which of them want a worker, as their heads say; the others are stale."""
        found = []
        names = [_names(member) for member in members]
        heads = yield from self._heads(names)
        for member, (scope, run), reply in zip(members, names, heads, strict=True):
            try:
                head = shown_head(run, reply)
            except (JournalDamaged, JournalTooNew) as error:
                _log.error("no worker is told of run %r: %s", run, error)
                continue
            summary = head.summary if head else None
            due_at = summary.due_at if summary else None
            if head is None or (summary is not None and (due_at is None or due_at > now_ms)):
                stale[member] = due_at
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

    def _settle(self, due: Mapping[str, int | None]) -> Steps[None]:
        """Take these out, or move them to these times, unless their heads say something earlier."""
        gone = tuple(member for member, due_at in due.items() if due_at is None)
        later = [
            word
            for member, due_at in due.items()
            if due_at is not None
            for word in (due_at, member)
        ]
        calls = [Call("ZREM", (self._key,), gone)] if gone else []
        yield [*calls, Call("ZADD", (self._key,), tuple(later))] if later else calls
        names = [_names(member) for member in due]
        heads = yield from self._heads(names)
        back = []
        for member, (_, run), reply in zip(due, names, heads, strict=True):
            head = shown_head(run, reply)
            if head is not None and head.summary is not None and head.summary.due_at is not None:
                back.append(self._enter(member, head.summary.due_at))
        if back:
            yield back

    def _enter(self, member: str, due_at: int) -> Call:
        """Enter it, or move it forward."""
        return Call("ZADD", (self._key,), ("LT", due_at, member))


def _member(scope: str, run: str) -> str:
    return f"{scope}{_SEPARATOR}{run}"


def _names(member: str) -> tuple[str, str]:
    scope, _, run = member.partition(_SEPARATOR)
    return scope, run
