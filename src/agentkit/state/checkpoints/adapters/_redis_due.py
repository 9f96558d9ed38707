"""Runs that want a worker, on Redis: a hint beside the heads, as the index is."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew, StoreMisused
from agentkit.core.contracts.heads import Claimable
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_heads import run_keys
from agentkit.state.checkpoints.adapters._redis_hints import Clock, Hints, refuse_lost
from agentkit.state.checkpoints.adapters._redis_index import shown_head
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, optional
from agentkit.state.checkpoints.adapters._redis_plans import Steps

_log = logging.getLogger("agentkit.state")

_BATCH = 1000
_HEADS = 200
_REMEMBERED = 10_000
_SEPARATOR = "\0"  # in no scope and no run id, and before all that is: members sort as they do


class Due(NamedTuple):
    """When a run wants a worker, if at all, and the epoch of who says so; none of a note."""

    at: int | None
    epoch: int | None


class RedisDue:
    """Runs of all scopes by when they want a worker, and until when they are held.

    No entry is ever later than its head says. A run is entered before its head says that it wants a
    worker, so that a crash between the two makes nobody wait in vain, and that only moves it
    forward; see `_redis_hints` for how it goes. Until when a run is held is noted after its head
    says so, to spare whoever looks for work the heads of runs that are worked on: as long as a page
    is full of others, a run whose holder let it go and died before it could note that is found when
    its lease would have lapsed.

    Args:
        prefix: what all keys begin with.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
    """

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._prefix = prefix
        self._clock = clock
        self.hints = Hints(f"{prefix}:due", clock)
        self._held = f"{prefix}:held:{{{prefix}:due}}"
        self._entered: OrderedDict[str, Due] = OrderedDict()

    def enter(self, scope: str, run: str, due_at: int | None, *, until_ms: int) -> list[Call]:
        """What to do after a run was claimed that may be missing here."""
        if due_at is None:
            return []
        entering = self.hints.enter(_member(scope, run), due_at, only="LT")
        return [*entering, *self.held({(scope, run): until_ms})]

    def listed(self, scope: str, run: str, due_at: int) -> list[Call]:
        """What to do with a run whose head says that it is due then."""
        return self.hints.enter(_member(scope, run), due_at, only="LT")

    def before(self, scope: str, run: str, due: Due) -> list[Call]:
        """What to do before a head says this; nothing where it is known to be done: by the holder
        of the same lease, since when it has gone nobody knows what others did.
        """
        member = _member(scope, run)
        if due.epoch and self._entered.get(member) == due:
            return []
        entering = [] if due.at is None else self.hints.enter(member, due.at, only="LT")
        return [*entering, *([] if due.at == 0 else optional(self.hints.mark(member)))]

    def after(
        self, scope: str, run: str, due: Due, *, due_before: int | None, mark: bytes | None
    ) -> list[Call]:
        """What to do after a head has come to say this; `mark` as it was made before."""
        member = _member(scope, run)
        self.forget(scope, run)
        if due.epoch:
            self._entered[member] = due
            while len(self._entered) > _REMEMBERED:
                self._entered.popitem(last=False)
        if due.at is None or (due_before is not None and due.at > due_before):
            return self.hints.drop(member, due.at, mark=mark) if mark else []
        return [] if due.at == due_before else self.hints.enter(member, due.at, only="LT")

    def forget(self, scope: str, run: str) -> None:
        """Others have written to the run: what is known of its entry is so no more."""
        self._entered.pop(_member(scope, run), None)

    def gone(self, scope: str, run: str) -> list[Call]:
        """What to do after a run was deleted."""
        self.forget(scope, run)
        return self.hints.doubt({_member(scope, run): None})

    def held(self, until_ms: Mapping[tuple[str, str], int]) -> list[Call]:
        """What to do after these scopes and runs have come to be held until then; 0: not at all."""
        words = [
            word for (scope, run), ms in until_ms.items() for word in (ms, _member(scope, run))
        ]
        return [Call("ZADD", (self._held,), tuple(words))] if words else []

    def lapsed(self, before_ms: int) -> list[Call]:
        """Forget who held runs until before that time."""
        return [Call("ZREMRANGEBYSCORE", (self._held,), ("-inf", before_ms))]

    def claimable(self, *, agents: Collection[str] | None, limit: int) -> Steps[list[Claimable]]:
        """See `JournalPort.claimable`. Heads are read of runs that nobody is noted to hold, and of
        others as far as there is room on the page.
        """
        looking = _Looking(agents, limit)
        held: list[str] = []
        offset = 0
        while looking.wants_free:
            words = (*self._clock(), offset, _BATCH)
            reply, whole = yield [
                Call("due", (self.hints.key, self._held), words, script=True),
                self.hints.look(),
            ]
            refuse_lost(whole)
            now, members, flags = cast("tuple[bytes, list[bytes], list[int]]", reply)
            looking.now_ms = int(now)
            names = [member.decode() for member in members]
            free = [name for name, flag in zip(names, flags, strict=True) if not flag]
            held += [name for name, flag in zip(names, flags, strict=True) if flag]
            for at in range(0, len(free), _HEADS):
                if looking.wants_free:
                    yield from self._look(free[at : at + _HEADS], looking)
            offset += len(names)
            if len(names) < _BATCH:
                break
        while held and looking.wants_more:
            size = min(_HEADS, limit)
            yield from self._look(held[:size], looking)
            del held[:size]
        if looking.stale:
            yield self.hints.doubt(looking.stale)
        return sorted(looking.found, key=rules.claim_order)[: max(limit, 0)]

    def _look(self, members: Sequence[str], looking: _Looking) -> Steps[None]:
        names = [_names(member) for member in members]
        replies = yield [
            Call("head", run_keys(self._prefix, scope, run)[:2], self._clock(), script=True)
            for scope, run in names
        ]
        for member, (scope, run), reply in zip(members, names, replies, strict=True):
            looking.take(member, scope, run, reply)


class _Looking:
    """What has been found by a look at heads.

    Attributes:
        now_ms: the time by which runs are due.
        found: those that want a worker.
        stale: members that their heads do not bear out, and the later times that these say.
    """

    def __init__(self, agents: Collection[str] | None, limit: int) -> None:
        self._agents = agents
        self._limit = limit
        self.now_ms = 0
        self.found: list[Claimable] = []
        self.stale: dict[str, int | None] = {}

    @property
    def wants_free(self) -> bool:
        """Whether the page has room for runs that nobody holds."""
        return sum(not one.held for one in self.found) < self._limit

    @property
    def wants_more(self) -> bool:
        """Whether the page has room."""
        return len(self.found) < self._limit

    def take(self, member: str, scope: str, run: str, reply: Reply) -> None:
        """Look at one head."""
        try:
            head = shown_head(run, reply)
        except (JournalDamaged, JournalTooNew, StoreMisused) as error:
            _log.error("no worker is told of run %r: %s", run, error)
            return
        summary = head.summary if head else None
        due_at = summary.due_at if summary else None
        if head is None or (summary is not None and (due_at is None or due_at > self.now_ms)):
            self.stale[member] = due_at
            return
        one = rules.claimable(scope, head, now_ms=self.now_ms)
        if one is not None and (self._agents is None or one.agent in self._agents):
            self.found.append(one)


def _member(scope: str, run: str) -> str:
    return f"{scope}{_SEPARATOR}{run}"


def _names(member: str) -> tuple[str, str]:
    scope, _, run = member.partition(_SEPARATOR)
    return scope, run
