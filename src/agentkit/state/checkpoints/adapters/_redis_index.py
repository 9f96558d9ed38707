"""Which runs there are, on Redis: a hint beside the heads, since no script reaches both.

A run is entered before its first entry is written and again after, and whoever lists looks at the
heads: what has had none for a while goes (see `_redis_hints`), and wrong start times are mended. A
list that may lack runs is `ListsLost`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, cast

from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew, StoreMisused
from agentkit.core.contracts.heads import Head, RunStatus, RunSummary, Summary
from agentkit.core.contracts.slots import slot_of
from agentkit.state.checkpoints.adapters import _rules as rules
from agentkit.state.checkpoints.adapters._redis_heads import found_in, head_of, run_keys
from agentkit.state.checkpoints.adapters._redis_hints import MARK, Clock, Hints, refuse_lost
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, Word
from agentkit.state.checkpoints.adapters._redis_plans import Steps
from agentkit.state.checkpoints.adapters._redis_verdicts import foreign

_BATCH = 200
_MENDINGS = 3

_log = logging.getLogger("agentkit.state")


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
        self.scope_list = Hints(f"{prefix}:scopes", clock, mark_score="0")

    def before(self, scope: str, run: str, started_at: int) -> list[Call]:
        """What to do before a run gets its first entry, or where it may be missing."""
        runs = self.runs_of(scope)
        return [*runs.enter(run, -started_at, only="NX"), self.scope_list.enter_new(scope)]

    def begun(self, scope: str, replies: Sequence[Reply]) -> list[Call]:
        """What else to do before, after these replies: a scope that is new has a whole list."""
        return [self.runs_of(scope).born()] if b"new" in replies else []

    def after(self, scope: str, run: str, started_at: int) -> list[Call]:
        """What to do after a run got its first entry, or another start."""
        return [*self.listed(scope, run, started_at), self.scope_list.enter_new(scope)]

    def listed(self, scope: str, run: str, started_at: int | None) -> list[Call]:
        """What to do with a run that has a head; it keeps its place where that is not readable."""
        runs = self.runs_of(scope)
        if started_at is None:
            return runs.enter(run, 0, only="NX")
        return runs.enter(run, -started_at, only="CH")

    def gone(self, scope: str, runs: Sequence[str]) -> list[Call]:
        """What to do with runs that have no head, or have it no more."""
        return self.runs_of(scope).doubt(dict.fromkeys(runs))

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
            reply, whole = yield [
                Call("ZRANGE", (self.scope_list.key,), words),
                self.scope_list.look(),
            ]
            refuse_lost(whole)
            batch = [key.decode() for key in cast("list[bytes]", reply)]
            for scope in batch:
                if scope == MARK:
                    continue
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
        place, listed = _Place(page.behind), self.runs_of(scope)
        gone: list[str] = []
        wrong: list[Head] = []
        size = max(page.limit, 0)
        count = min(_BATCH, size + 1) if page.status is None and page.agent is None else _BATCH
        while len(found) <= size:
            words = (place.low, "(+inf", "BYSCORE", "LIMIT", place.offset, count, "WITHSCORES")
            reply, whole = yield [Call("ZRANGE", (listed.key,), words), listed.look()]
            if whole != b"whole":
                yield from self._refuse_known(scope, whole)
            entries = cast("list[bytes]", reply)
            runs = place.take(entries)
            heads = yield from self._heads(scope, runs)
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
            yield self.gone(scope, gone)
        for head in wrong:
            if head.summary is not None:
                yield self.after(scope, head.run, head.summary.started_at)
        return found, bool(wrong)

    def _heads(self, scope: str, runs: Sequence[tuple[str, float]]) -> Steps[list[Head | None]]:
        """The heads of these runs and scores; `None` where there is nothing, and one without
        entries where only a head is missing, which is told to whoever uses the run.
        """
        if not runs:
            return []
        calls = [
            Call("head", run_keys(self._prefix, scope, run)[:2], self._clock(), script=True)
            for run, _ in runs
        ]
        replies = yield calls
        return [
            _listed(run, -int(score), reply)
            for (run, score), reply in zip(runs, replies, strict=True)
        ]

    def _forget(self, scope: str) -> Steps[None]:
        """The scope holds no run that can be shown; without any in its list it goes."""
        (count,) = yield [Call("ZCOUNT", (self.runs_of(scope).key,), ("-inf", "(+inf"))]
        if not count:
            yield self.scope_list.doubt({scope: None})

    def _refuse_known(self, scope: str, state: Reply) -> Steps[None]:
        """A scope that was never heard of has no list; any other one should have.

        Raises:
            ListsLost: it should, or nobody knows.
        """
        there, known = yield [
            Call("ZSCORE", (self.scope_list.key,), (scope,)),
            self.scope_list.look(),
        ]
        refuse_lost(state if there is not None else known)

    def runs_of(self, scope: str) -> Hints:
        """The list of a scope's runs."""
        return Hints(f"{self._prefix}:runs:{slot_of(scope, '')}", self._clock)


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
    """The head in a reply of the script `head`; one without entries where only the head is gone.

    Raises:
        JournalDamaged: it is not one that we wrote.
        JournalTooNew: a newer release wrote it.
        StoreMisused: somebody else's key has its name.
    """
    code, *said = cast("list[Reply]", reply)
    if code == b"newer":
        raise JournalTooNew(
            f"run {run!r} was written by a newer release. Upgrade agentkit to list these runs."
        )
    if code == b"foreign":
        raise foreign(run)
    if code == b"head":
        return head_of(run, found_in(said[0]))
    return Head(run) if code == b"headless" else None


def _listed(run: str, started_at: int, reply: Reply) -> Head | None:
    """The head as lists show it: one that cannot be read keeps its place and hides no other run.

    Its detail is empty, which nobody writes, and it is open, so that nobody prunes it; whoever uses
    the run is told what is wrong.
    """
    try:
        return shown_head(run, reply)
    except (JournalDamaged, StoreMisused) as error:
        _log.error("the list shows a run that cannot be read: %s", error)
        summary = Summary(status="parked", started_at=started_at, detail=b"")
        return Head(run, seq=1, summary=summary)
