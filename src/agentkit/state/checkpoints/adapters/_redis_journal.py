"""The operations of a journal on Redis, as steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

from agentkit.core.contracts.errors import StoreMisused
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_due import Due, RedisDue
from agentkit.state.checkpoints.adapters._redis_heads import (
    Keys,
    element_of,
    fields_of,
    found_in,
    head_after,
    head_of,
    rows_of,
    run_keys,
)
from agentkit.state.checkpoints.adapters._redis_hints import mark_in
from agentkit.state.checkpoints.adapters._redis_index import RedisIndex
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, Word, optional
from agentkit.state.checkpoints.adapters._redis_options import Lifetimes
from agentkit.state.checkpoints.adapters._redis_plans import Steps
from agentkit.state.checkpoints.adapters._redis_verdicts import failed_over, unusable
from agentkit.state.checkpoints.adapters._store_clock import StoreClock

OnFailover: TypeAlias = Literal["stop", "accept"]

MAX_ROWS = 500_000
"""Most entries of one append; a command of Redis has not room for many more."""

_log = logging.getLogger("agentkit.state")


class Appending(NamedTuple):
    """What one append brings; see `JournalPort.append`."""

    rows: Sequence[Row]
    after: int
    lease: Lease | None
    summary: Summary
    release: bool

    @property
    def due(self) -> Due:
        """When the run wants a worker afterwards, as who writes it knows."""
        return Due(self.summary.due_at, self.lease.epoch if self.lease else None)


class Renewed(NamedTuple):
    """What a renewal came to, and until when the lease lasts of a run that wants a worker."""

    renewal: Renewal
    until_ms: int | None


class RedisJournal:
    """Every method takes scope key and run id first.

    Args:
        index: where the runs are listed.
        due: where those that want a worker are listed.
        prefix: what all keys begin with.
        clock: of a test; `None` where the server's own judges leases.
        lifetimes: of the keys.
        on_failover: whether to go on with what another server has.
    """

    def __init__(
        self,
        index: RedisIndex,
        due: RedisDue,
        *,
        prefix: str,
        clock: StoreClock | None,
        lifetimes: Lifetimes,
        on_failover: OnFailover,
    ) -> None:
        self._index = index
        self._due = due
        self._prefix = prefix
        self._clock = clock
        self._lifetimes = lifetimes
        self._on_failover = on_failover

    def acquire(
        self,
        scope: str,
        run: str,
        *,
        owner: str,
        ttl_seconds: float,
        token: str,
        supersede: int | None,
        above: int,
    ) -> Steps[Lease]:
        """See `JournalPort.acquire`; a request that is repeated under its token is one."""
        keys = self._keys(scope, run)
        known = "" if supersede is None else supersede
        wanted = (owner, round(ttl_seconds * 1000), token, known, above, *self._lifetimes.words)
        code, *said = yield from self._acted(run, keys, self._call("acquire", keys, *wanted))
        if code == b"in_use":
            raise rules.in_use(run, head_of(run, found_in(said[0])))
        found = found_in(said[1])
        head = head_of(run, found)
        self._due.forget(scope, run)
        if head.summary is not None:
            summary, until_ms = head.summary, int(found.expires_ms)
            listing = self._index.before(scope, run, summary.started_at)
            listing += self._due.enter(scope, run, summary.due_at, until_ms=until_ms)
            yield from self._entered(scope, optional(listing))
        return Lease(
            run=run,
            owner=owner,
            epoch=head.epoch,
            ttl_seconds=ttl_seconds,
            head=head,
            took_over=said[0] == b"1",
            scope=scope,
        )

    def renew(self, lease: Lease) -> Steps[Renewed]:
        """See `JournalPort.renew`."""
        (reply,) = yield [self._renewal(lease)]
        code, *said = cast("list[bytes]", reply)
        if code == b"renewed":
            return Renewed(Renewal(int(said[0])), int(said[1]) if said[1] else None)
        if code != b"lost":
            # The others' leases must not lapse for it; whoever uses this run next is told why.
            _log.error("the lease of run %r is given up: %s", lease.run, code.decode())
        return Renewed(Renewal(int(said[0]) if code == b"lost" else 0, lost=True), None)

    def note_held(self, until_ms: Sequence[tuple[Lease, int]]) -> Steps[None]:
        """What to do after these leases have come to last until then."""
        held = {(lease.scope, lease.run): ms for lease, ms in until_ms}
        lapsed = min(ms - round(lease.ttl_seconds * 1000) for lease, ms in until_ms)
        yield optional([*self._due.held(held), *self._due.lapsed(lapsed)])

    def append(self, scope: str, run: str, new: Appending) -> Steps[Head]:
        """See `JournalPort.append`."""
        keys = self._keys(scope, run)
        call = self._appending(run, keys, new)
        before = self._before(scope, run, new)
        mark = mark_in((yield from self._entered(scope, before))) if before else None
        code, *said = yield from self._acted(run, keys, call)
        if code != b"written":
            self._due.forget(scope, run)
            head = None if said[0] is None else head_of(run, found_in(said[0]))
            if head is None or code == b"refused":
                raise rules.refusal(run, head=head, lease=new.lease, after=new.after)
            return head
        *left, started, due = cast("list[bytes]", said)
        head = head_after(run, left, summary=new.summary)
        if head.summary is None:
            return head
        due_before = int(due) if due else None
        behind = self._due.after(scope, run, new.due, due_before=due_before, mark=mark)
        if str(new.summary.started_at).encode() != started:
            behind += self._index.after(scope, run, new.summary.started_at)
        if new.due.at is not None and (new.release or new.after == 0):
            behind += self._due.held({(scope, run): int(left[5] or 0)})
        if behind:
            yield optional(behind)
        return head

    def _before(self, scope: str, run: str, new: Appending) -> list[Call]:
        """What to do before the head is moved."""
        if not new.rows and not new.after:
            return []
        calls = self._due.before(scope, run, new.due)
        if new.rows and new.after == 0:
            calls += self._index.before(scope, run, new.summary.started_at)
        return calls

    def _entered(self, scope: str, calls: Sequence[Call]) -> Steps[Sequence[Reply]]:
        """The replies to what is done before a head is moved, and the list of a new scope begun."""
        replies = yield calls
        born = self._index.begun(scope, replies)
        if born:
            yield born
        return replies

    def read(self, scope: str, run: str, *, after: int, limit: int) -> Steps[list[Row]]:
        """See `JournalPort.read`."""
        keys, start = self._keys(scope, run), max(after, 0)
        (reply,) = yield [self._call("read", keys, start, max(limit, 0))]
        code, *said = cast("list[Reply]", reply)
        self._refuse_unusable(run, code, said)
        return rows_of(run, start, said[0])

    def head(self, scope: str, run: str) -> Steps[Head | None]:
        """See `JournalPort.head`."""
        (reply,) = yield [self._call("head", self._keys(scope, run))]
        code, *said = cast("list[Reply]", reply)
        self._refuse_unusable(run, code, said)
        return head_of(run, found_in(said[0])) if code == b"head" else None

    def delete(self, scope: str, run: str, *, token: str) -> Steps[bool]:
        """See `JournalPort.delete_run`; a request that is repeated under its token is one."""
        keys = self._keys(scope, run)
        kept_ms = self._lifetimes.words[1] or round(EPOCH_SECONDS * 1000)
        (reply,) = yield [self._call("delete", keys, kept_ms, token)]
        code, *said = cast("list[Reply]", reply)
        if code == b"in_use":
            raise rules.in_use(run, head_of(run, found_in(said[0])))
        self._refuse_unusable(run, code, said)
        yield optional([*self._due.gone(scope, run), *self._index.gone(scope, [run])])
        return code == b"deleted"

    def entomb(self, scope: str, run: str, *, updated_at: int, token: str) -> Steps[bool]:
        """See `JournalPort.entomb`; a request that is repeated under its token is one."""
        (reply,) = yield [self._call("entomb", self._keys(scope, run), updated_at, token)]
        code, *said = cast("list[Reply]", reply)
        self._refuse_unusable(run, code, said)
        return code == b"entombed"

    def accept(self, scope: str, run: str) -> Steps[bool]:
        """Go on with what this server has of the run; see the store's `accept_failover`."""
        keys = self._keys(scope, run)
        (reply,) = yield [self._call("head", keys)]
        code, *said = cast("list[Reply]", reply)
        self._refuse_unusable(run, code, said)
        if code != b"head":
            return False
        (reply,) = yield [self._call("accept", keys, found_in(said[0]).server)]
        return reply == [b"accepted"]

    def _acted(self, run: str, keys: Keys, call: Call) -> Steps[list[Reply]]:
        """The verdict on an act, after a change of servers has been looked into."""
        while True:
            (reply,) = yield [call]
            code, *said = cast("list[Reply]", reply)
            if code != b"failed_over":
                self._refuse_unusable(run, code, said)
                return [code, *said]
            how, server = cast("list[bytes]", said)
            moved = how != b"demoted" and (yield from self._is_master(server.decode()))
            if not moved and self._on_failover == "stop":
                raise failed_over(run, how.decode())
            if not moved:
                _log.warning("run %r goes on after a failover: %s", run, how.decode())
            yield [self._call("accept", keys, server)]

    def _is_master(self, server: str) -> Steps[bool]:
        """Whether the process that wrote a head still is one of the masters: its keys were moved
        to another node then, and nothing of them is missing.
        """
        (reply,) = yield [Call("INFO server")]
        found = b"\n".join(cast("list[bytes]", reply))
        return f"run_id:{server}".encode() in found

    def _appending(self, run: str, keys: Keys, new: Appending) -> Call:
        if len(new.rows) > MAX_ROWS:
            raise StoreMisused(
                f"run {run!r}: an append of {len(new.rows)} entries; on Redis at most {MAX_ROWS} "
                f"can go in one. Nothing was written."
            )
        lease = new.lease
        held: tuple[Word, ...] = (lease.epoch, lease.owner) if lease else ("", "")
        fields = fields_of(new.summary)
        tip = [new.rows[-1].check.hex()] if new.rows else []
        rows = [element_of(run, row) for row in new.rows]
        words = (*self._lifetimes.words, len(fields), *fields, *tip, *rows)
        return self._call("append", keys, new.after, *held, int(new.release), *words)

    def _renewal(self, lease: Lease) -> Call:
        keys = self._keys(lease.scope, lease.run)
        ttl_ms = round(lease.ttl_seconds * 1000)
        return self._call("renew", keys, lease.epoch, lease.owner, ttl_ms, *self._lifetimes.words)

    def _refuse_unusable(self, run: str, code: Reply, said: Sequence[Reply]) -> None:
        error = unusable(run, code, said)
        if error is not None:
            raise error

    def _keys(self, scope: str, run: str) -> Keys:
        return run_keys(self._prefix, scope, run)

    def _call(self, name: str, keys: Keys, *args: Word) -> Call:
        needed = keys if name in {"acquire", "delete"} else keys[:2]
        return Call(name, tuple(needed), (*now(self._clock), *args), script=True)


EPOCH_SECONDS = 7 * 86_400.0
"""How long the epoch of a deleted run is remembered where heads are kept for ever."""


def now(clock: StoreClock | None) -> tuple[Word, Word]:
    """Elapsed and wall time of a test's clock, as the scripts take them."""
    return ("", "") if clock is None else (clock.elapsed_ms(), clock.wall_ms())
