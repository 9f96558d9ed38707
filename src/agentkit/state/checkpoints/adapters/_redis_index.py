"""Which runs there are, on Redis: a hint beside the heads, since no script reaches both.

In a cluster the index of a scope and the heads of its runs are in different slots. So a run is
entered before its first entry is written and again after, and whoever lists looks at the heads:
entries without a head go, and wrong start times are mended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, cast

from agentkit.core.contracts.errors import JournalTooNew
from agentkit.core.contracts.heads import Head, RunStatus, RunSummary
from agentkit.core.contracts.slots import slot_of
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_heads import found_in, head_of, run_keys
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, Word
from agentkit.state.checkpoints.adapters._redis_plans import Steps

_BATCH = 200
_MENDINGS = 3

Clock: TypeAlias = "Callable[[], tuple[Word, Word]]"


class Page(NamedTuple):
    """What is asked of a list; see `JournalPort.list_runs`."""

    status: RunStatus | None
    agent: str | None
    limit: int
    behind: tuple[int, str] | None


class RedisIndex:
    """The runs of each scope by start, newest first, and the scopes.

    Args:
        prefix: what all keys begin with.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
    """

    def __init__(self, prefix: str, clock: Clock) -> None:
        self._prefix = prefix
        self._clock = clock

    def before(self, scope: str, run: str, started_at: int) -> list[Call]:
        """What to do before a run gets its first entry, or where it may be missing."""
        return [
            Call("ZADD", (self._runs(scope),), ("NX", -started_at, run)),
            Call("ZADD", (self._scopes,), ("NX", 0, scope)),
        ]

    def after(self, scope: str, run: str, started_at: int) -> list[Call]:
        """What to do after a run got its first entry, or another start."""
        return [
            Call("ZADD", (self._runs(scope),), (-started_at, run)),
            Call("ZADD", (self._scopes,), ("NX", 0, scope)),
        ]

    def drop(self, scope: str, runs: Sequence[str]) -> Steps[None]:
        """These have no head. One that gets its head just now is entered again: here if the head
        is there by now, else by whoever writes it, who enters it afterwards too.
        """
        yield [Call("ZREM", (self._runs(scope),), tuple(runs))]
        heads = yield from self._heads(scope, runs)
        for run, head in zip(runs, heads, strict=True):
            if head is not None and head.summary is not None:
                yield self.after(scope, run, head.summary.started_at)

    def list_runs(self, scope: str, page: Page) -> Steps[tuple[list[RunSummary], str]]:
        """See `JournalPort.list_runs`."""
        found: list[Head] = []
        for _ in range(_MENDINGS):
            found, mended = yield from self._page(scope, page)
            if not mended:
                break
        size = max(page.limit, 0)
        shown = [
            RunSummary(head.run, head.summary, head.seq, head.epoch, head.owner, head.held)
            for head in found[:size]
            if head.summary is not None
        ]
        if not shown or len(found) <= size:
            return shown, ""
        return shown, rules.to_cursor(shown[-1].summary.started_at, shown[-1].run)

    def scopes(self, *, after: str | None, limit: int) -> Steps[list[str]]:
        """See `JournalPort.scopes`."""
        found: list[str] = []
        while len(found) < limit:
            begin = "-" if after is None else f"({after}"
            words = (begin, "+", "BYLEX", "LIMIT", 0, _BATCH)
            (reply,) = yield [Call("ZRANGE", (self._scopes,), words)]
            batch = [key.decode() for key in cast("list[bytes]", reply)]
            for scope in batch:
                page, _ = yield from self.list_runs(scope, Page(None, None, 1, None))
                if page:
                    found.append(scope)
                else:
                    yield from self._forget(scope)
            if len(batch) < _BATCH:
                break
            after = batch[-1]
        return found[: max(limit, 0)]

    def _page(self, scope: str, page: Page) -> Steps[tuple[list[Head], bool]]:
        """One head more than the page has room for, and whether the order was mended."""
        found: list[Head] = []
        place = _Place(page.behind)
        gone: list[str] = []
        wrong: list[Head] = []
        size = max(page.limit, 0)
        count = min(_BATCH, size + 1) if page.status is None and page.agent is None else _BATCH
        while len(found) <= size:
            words = (place.low, "+inf", "BYSCORE", "LIMIT", place.offset, count, "WITHSCORES")
            (reply,) = yield [Call("ZRANGE", (self._runs(scope),), words)]
            entries = cast("list[bytes]", reply)
            runs = place.take(entries)
            heads = yield from self._heads(scope, [run for run, _ in runs])
            for (run, score), head in zip(runs, heads, strict=True):
                if head is None:
                    gone.append(run)
                elif head.summary is not None:
                    if float(-head.summary.started_at) != score:
                        wrong.append(head)
                    if _fits(head, page):
                        found.append(head)
            if len(entries) < 2 * count:
                break
        if gone:
            yield from self.drop(scope, gone)
        for head in wrong:
            if head.summary is not None:
                yield self.after(scope, head.run, head.summary.started_at)
        return found, bool(wrong)

    def _heads(self, scope: str, runs: Sequence[str]) -> Steps[list[Head | None]]:
        """The heads; `None` where there is nothing, and one without entries where only a head is
        missing, which is told to whoever uses the run.
        """
        if not runs:
            return []
        calls = [
            Call("head", run_keys(self._prefix, scope, run)[:2], self._clock(), script=True)
            for run in runs
        ]
        replies = yield calls
        return [shown_head(run, reply) for run, reply in zip(runs, replies, strict=True)]

    def _forget(self, scope: str) -> Steps[None]:
        """The scope holds no run; one that is entered just now stays, as for `drop`."""
        yield [Call("ZREM", (self._scopes,), (scope,))]
        (count,) = yield [Call("ZCARD", (self._runs(scope),))]
        if count:
            yield [Call("ZADD", (self._scopes,), ("NX", 0, scope))]

    def _runs(self, scope: str) -> str:
        return f"{self._prefix}:runs:{slot_of(scope, '')}"

    @property
    def _scopes(self) -> str:
        return f"{self._prefix}:scopes"


class _Place:
    """How far a list has been read: from which score on, and how many of that score."""

    def __init__(self, behind: tuple[int, str] | None) -> None:
        self.low: Word = "-inf" if behind is None else -behind[0]
        self.offset = 0
        self._behind = behind
        self._seen: set[str] = set()

    def take(self, entries: Sequence[bytes]) -> list[tuple[str, float]]:
        """The runs among these members and scores that are new, and move on behind them."""
        new = []
        for member, text in zip(entries[::2], entries[1::2], strict=True):
            run, score = member.decode(), float(text)
            same = self.low != "-inf" and float(self.low) == score
            self.low, self.offset = (self.low, self.offset + 1) if same else (text, 1)
            behind = self._behind
            passed = behind is not None and (score, run) <= (float(-behind[0]), behind[1])
            if run not in self._seen and not passed:
                self._seen.add(run)
                new.append((run, score))
        return new


def _fits(head: Head, page: Page) -> bool:
    summary = head.summary
    return (
        summary is not None
        and page.status in {None, summary.status}
        and page.agent in {None, summary.agent}
    )


def shown_head(run: str, reply: Reply) -> Head | None:
    """The head in a reply of the script `head`; one without entries where only the head is gone."""
    code, *said = cast("list[Reply]", reply)
    if code == b"newer":
        raise JournalTooNew(
            f"run {run!r} was written by a newer release. Upgrade agentkit to list these runs."
        )
    if code == b"head":
        return head_of(run, found_in(said[0]))
    return Head(run) if code == b"headless" else None
