"""Lists that may lack members are made anew, on Redis: from the heads, which say what is true.

A list is one key of one server. Its server may come back without its newest members, or without
it, while the heads, which are elsewhere in a cluster, are whole; a server that throws out keys may
throw out a list. Whoever meets such a list goes through all keys of all masters and enters what the
heads want to be found by. One does so at a time. A list that was lost again meanwhile, and servers
that changed meanwhile, make it begin again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from agentkit.core.contracts import slots
from agentkit.core.contracts.errors import StoreUnreachable
from agentkit.core.contracts.ports import ClockPort
from agentkit.core.runtime.chance import SystemChance
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters._redis_address import Place
from agentkit.state.checkpoints.adapters._redis_due import RedisDue
from agentkit.state.checkpoints.adapters._redis_hints import BUILDING_SECONDS, MARK, Hints
from agentkit.state.checkpoints.adapters._redis_index import RedisIndex
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, Servers
from agentkit.state.checkpoints.adapters._redis_plans import Steps

__all__ = ["ATTEMPTS", "Rebuild"]

T = TypeVar("T")
Layout: TypeAlias = "list[tuple[Place | None, str, str]]"
End: TypeAlias = Literal["whole", "busy", "lost"]

ATTEMPTS = 5
"""How often the lists are made anew where servers or lists go meanwhile."""

_KEYS = 500
_PAUSE_SECONDS = 0.2
_FIELDS = ("seq", "started_ms", "due_ms")


class Runs(Protocol):
    """What steps run on."""

    async def read(self, start: Callable[[], Steps[T]]) -> T:
        """Run these steps."""
        ...

    async def ask(self, work: Callable[[Servers], T]) -> T:
        """Run this on the servers themselves."""
        ...


class _Listed(NamedTuple):
    """What a head wants to be found by."""

    scope: str
    run: str
    started_at: int | None
    due_at: int | None


class Rebuild:
    """One making of all lists.

    Args:
        engine: what steps run on.
        prefix: what all keys begin with.
        index: the lists of runs and scopes.
        due: the list of due runs.
    """

    def __init__(self, engine: Runs, *, prefix: str, index: RedisIndex, due: RedisDue) -> None:
        self._engine = engine
        self._index = index
        self._due = due
        self._stem = f"{prefix}:checkpoint:{{"
        self._clock: ClockPort = SystemClock()

    async def run(self, scope: str) -> int:
        """Make the lists whole, that of `scope` among them, or wait for who is at it.

        Returns how many runs were entered, 0 where another one did it.

        Raises:
            StoreUnreachable: they cannot be made whole, since servers change or throw them out, or
                another one has not come to an end.
        """
        until = self._clock.elapsed() + 2 * BUILDING_SECONDS
        attempts = 0
        while attempts < ATTEMPTS and self._clock.elapsed() < until:
            attempt = _Attempt(self._engine, self._index, self._due, stem=self._stem)
            end = await attempt.run(scope)
            if end == "whole":
                return attempt.entered
            if end == "lost":
                attempts += 1
                until = self._clock.elapsed() + 2 * BUILDING_SECONDS
            await self._clock.sleep(_PAUSE_SECONDS)
            if end == "busy" and await self._engine.read(self._are_whole):
                return 0
        raise StoreUnreachable(
            "the lists of runs may lack some, and could not be made anew: servers were replaced or "
            "lists thrown out (maxmemory-policy) meanwhile, or another process is at it. Nothing "
            "was lost of the runs themselves. Try again."
        )

    def _are_whole(self) -> Steps[bool]:
        replies = yield [self._index.scope_list.look()]
        return replies == [b"whole"]


class _Attempt:
    """Everything once: begin all lists, go through all masters, end all lists."""

    def __init__(self, engine: Runs, index: RedisIndex, due: RedisDue, *, stem: str) -> None:
        self._engine = engine
        self._index = index
        self._due = due
        self._stem = stem
        self._token = SystemChance().token()
        self._scopes: dict[str, None] = {}
        self.entered = 0

    async def run(self, scope: str) -> End:
        """Returns how it ended."""
        layout: Layout = await self._engine.ask(lambda servers: servers.layout())
        if await self._engine.read(self._begin) == b"busy":
            return "busy"
        await self._engine.read(lambda: self._begin_runs([scope]))
        after = "-"
        while after:
            after = await self._engine.read(lambda at=after: self._begin_known(at))  # type: ignore[misc]  # bound now
        for place, _, _ in layout:
            if not await self._enter_all(place):
                return "lost"
        if layout != await self._engine.ask(lambda servers: servers.layout()):
            return "lost"
        lists = [self._index.runs_of(one) for one in self._scopes]
        ended = [await self._engine.read(lambda one=one: self._finish(one)) for one in lists]  # type: ignore[misc]  # bound now
        ended += [
            await self._engine.read(lambda: self._finish(self._due.hints)),
            await self._engine.read(lambda: self._finish(self._index.scope_list)),
        ]
        return "whole" if all(ended) else "lost"

    async def _enter_all(self, place: Place | None) -> bool:
        """Enter what the heads of one master want; whether that is still of use."""
        cursor = 0
        while True:
            cursor, entered = await self._engine.read(lambda at=cursor: self._page(place, at))  # type: ignore[misc]  # bound now
            if entered is None:
                return False
            self.entered += entered
            if not cursor:
                return True

    def _begin(self) -> Steps[Reply]:
        (said,) = yield [self._index.scope_list.begin(self._token, alone=True)]
        if said != b"busy":
            yield [self._due.hints.begin(self._token)]
        return said

    def _begin_known(self, after: str) -> Steps[str]:
        """Begin the lists of the scopes that are known; returns behind which to go on, if any."""
        words = (after, "+", "BYLEX", "LIMIT", 0, _KEYS)
        (reply,) = yield [Call("ZRANGE", (self._index.scope_list.key,), words)]
        names = [member.decode() for member in cast("list[bytes]", reply)]
        yield from self._begin_runs([name for name in names if name != MARK])
        return f"({names[-1]}" if len(names) == _KEYS else ""

    def _begin_runs(self, scopes: Iterable[str]) -> Steps[None]:
        new = [scope for scope in dict.fromkeys(scopes) if scope not in self._scopes]
        if new:
            yield [self._index.runs_of(scope).begin(self._token) for scope in new]
            self._scopes |= dict.fromkeys(new)

    def _page(self, place: Place | None, cursor: int) -> Steps[tuple[int, int | None]]:
        """Enter what some heads want; returns where to go on, and how many or `None` if in vain."""
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", self._stem) + "*"
        words = (cursor, "MATCH", pattern, "COUNT", _KEYS, "TYPE", "hash")
        said, state = yield [
            Call("SCAN", args=words, at=place),
            self._index.scope_list.building(self._token),
        ]
        ((begin, found),) = cast("list[tuple[bytes, list[bytes]]]", said)
        keys = [key.decode(errors="replace") for key in found]
        heads = (yield [Call("HMGET", (key,), _FIELDS) for key in keys]) if keys else []
        listed = [
            one
            for key, head in zip(keys, heads, strict=True)
            if (one := self._listed(key, cast("list[bytes | None]", head))) is not None
        ]
        yield from self._begin_runs(one.scope for one in listed)
        calls = [call for one in listed for call in self._entering(one)]
        calls += [
            self._index.scope_list.enter_new(scope)
            for scope in dict.fromkeys(one.scope for one in listed)
        ]
        if calls:
            yield calls
        return int(begin), len(listed) if state == b"building" else None

    def _entering(self, one: _Listed) -> list[Call]:
        calls = self._index.listed(one.scope, one.run, one.started_at)
        if one.due_at is not None:
            calls += self._due.listed(one.scope, one.run, one.due_at)
        return calls

    def _listed(self, key: str, head: list[bytes | None]) -> _Listed | None:
        seq, started_ms, due_ms = head
        if seq in {None, b"0"} or not key.endswith("}"):
            return None
        first, colon, second = key[len(self._stem) : -1].partition(":")
        scope, run = (first, second) if colon else ("", first)
        started_at, due_at = _number(started_ms), _number(due_ms)
        return _Listed(slots.parse(scope).run, slots.parse(run).run, started_at, due_at)

    def _finish(self, hints: Hints) -> Steps[bool]:
        replies = yield [hints.finish(self._token)]
        return replies == [b"whole"]


def _number(text: bytes | None) -> int | None:
    """A number of a head; `None` for one that is not there or damaged."""
    return int(text) if text and re.fullmatch(rb"-?\d{1,15}", text) else None
