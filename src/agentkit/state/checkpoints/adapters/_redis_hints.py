"""Sorted sets that say where to look, while heads say what is true.

In a cluster a list and the heads that it leads to are in different slots, and no script reaches
both. So a member is entered before its head is written, and its writer may be late, or dead,
between the two. Nothing that a head wants to be found by may go for that, by these rules:

- Whoever finds a member that its head does not bear out marks it as doubted, and takes it out only
  where the mark has stood for `DOUBT_SECONDS`. Entering a member takes the mark away.
- Whoever changes a head so that it wants the member no more marks it before, and takes it out
  afterwards if the mark is still there. Whoever wants it back by then has read the changed head,
  and has entered it since.

A list that goes with its server, or is thrown out, is noticed by a mark in it and by the life of
the server that is noted beside it (`list.lua`), and made anew from the heads (`_redis_rebuild`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from agentkit.core.contracts.errors import StoreError
from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, Word

Clock: TypeAlias = "Callable[[], tuple[Word, Word]]"

DOUBT_SECONDS = 60.0
"""How long a member is doubted before it goes: longer than a writer is between it and the head."""

BUILDING_SECONDS = 30.0
"""For how long nobody else makes a list anew after the last sign of who does."""

MARK = "\1"
"""A member of each list that is whole; no name of a run or a scope."""

_AT_ONCE_MS = 0
_NEVER_MS = 2**53


class ListsLost(StoreError):
    """A list may lack members, and is to be made anew from the heads.

    Args:
        state: of the list, as `Hints.look` tells.
    """

    def __init__(self, state: Reply) -> None:
        super().__init__("a list of runs is not whole")
        self.is_news = state == b"lost"


def refuse_lost(state: Reply) -> None:
    """Return if a list is whole.

    Raises:
        ListsLost: it is not.
    """
    if state != b"whole":
        raise ListsLost(state)


class Hints:
    """One set.

    Args:
        key: of the set, without braces, so that the key of its marks can be in the same slot.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
        mark_score: of `MARK`, behind all that is looked for.
    """

    def __init__(self, key: str, clock: Clock, *, mark_score: str = "+inf") -> None:
        self.key = key
        self._doubts = f"{key}:doubts:{{{key}}}"
        self._life = f"{key}:life:{{{key}}}"
        self._clock = clock
        self._mark_score = mark_score

    def look(self) -> Call:
        """After members were read: whether they are all."""
        return self._list("look")

    def enter_new(self, member: str) -> Call:
        """Enter it if it is not there; `new` comes back if that was news to a whole list."""
        return self._list("enter", member)

    def born(self) -> Call:
        """It has had no members until now, and so is whole."""
        return self._list("born", self._mark_score)

    def begin(self, token: str, *, alone: bool = False) -> Call:
        """Before it is made anew; `busy` comes back if `alone` and somebody else is at it."""
        busy_ms = round(BUILDING_SECONDS * 1000) if alone else 0
        return self._list("begin", self._mark_score, token, busy_ms)

    def building(self, token: str) -> Call:
        """While it is made anew; `lost` comes back if what was entered may be gone."""
        return self._list("go_on", token)

    def finish(self, token: str) -> Call:
        """After everything was entered; `lost` comes back if some of it may be gone."""
        return self._list("finish", token)

    def enter(self, member: str, score: int, *, only: Literal["NX", "LT", "CH"]) -> list[Call]:
        """Enter it: if it is not there (`NX`), or not as early (`LT`), or in any case (`CH`).

        The mark goes first: a member that is entered and marked might be taken out.
        """
        return [
            Call("ZREM", (self._doubts,), (member,)),
            Call("ZADD", (self.key,), (only, score, member)),
        ]

    def mark(self, member: str) -> list[Call]:
        """Before a head comes to want the member no more, or only later; see `mark_in`."""
        return self._settle({member: None}, _NEVER_MS)

    def drop(self, member: str, score: int | None, *, mark: bytes) -> list[Call]:
        """After it has come to: take the member out, or move it, unless it was entered since."""
        return self._settle({member: score}, _AT_ONCE_MS, mark=mark)

    def doubt(self, found: Mapping[str, int | None]) -> list[Call]:
        """Heads do not bear these out, or only at the later scores that are given here."""
        return self._settle(found, round(DOUBT_SECONDS * 1000)) if found else []

    def _list(self, what: str, *words: Word) -> Call:
        keys = (self.key, self._doubts, self._life)
        return Call("list", keys, (*self._clock(), what, *words), script=True)

    def _settle(
        self, found: Mapping[str, int | None], doubted_ms: int, *, mark: bytes = b""
    ) -> list[Call]:
        words: list[Word] = [doubted_ms]
        for member, score in found.items():
            words += [member, "" if score is None else score, mark]
        keys = (self.key, self._doubts)
        return [Call("doubt", keys, (*self._clock(), *words), script=True)]


def mark_in(replies: Sequence[Reply]) -> bytes | None:
    """The mark among the replies to `Hints.mark` and other calls; `None` where nothing was marked,
    because there was no such member.
    """
    return next((cast("bytes | None", one[0]) for one in replies if isinstance(one, list)), None)
