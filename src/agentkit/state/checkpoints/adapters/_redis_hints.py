"""Sorted sets that say where to look, while heads say what is true.

In a cluster a list and the heads that it leads to are in different slots, and no script reaches
both. So a member is entered before its head is written, and its writer may be late, or dead,
between the two. Nothing that a head wants to be found by may go for that, by these rules:

- Whoever finds a member that its head does not bear out marks it as doubted, and takes it out only
  where the mark has stood for `DOUBT_SECONDS`. Entering a member takes the mark away.
- Whoever changes a head so that it wants the member no more marks it before, and takes it out
  afterwards if the mark is still there. Whoever wants it back by then has read the changed head,
  and has entered it since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from agentkit.state.checkpoints.adapters._redis_links import Call, Reply, Word

Clock: TypeAlias = "Callable[[], tuple[Word, Word]]"

DOUBT_SECONDS = 60.0
"""How long a member is doubted before it goes: longer than a writer is between it and the head."""

_AT_ONCE_MS = 0
_NEVER_MS = 2**53


class Hints:
    """One set.

    Args:
        key: of the set, without braces, so that the key of its marks can be in the same slot.
        clock: elapsed and wall time of a test's clock, or empty texts for the server's own.
    """

    def __init__(self, key: str, clock: Clock) -> None:
        self.key = key
        self._doubts = f"{key}:doubts:{{{key}}}"
        self._clock = clock

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
