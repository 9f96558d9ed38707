"""What the kit found, for people and for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from agentkit.testing.conformance.catalogue import Check

__all__ = ["Report", "Result", "Verdict"]

Result: TypeAlias = Literal["kept", "broken", "not offered"]

_WIDTH = 96


class Verdict(msgspec.Struct, frozen=True):
    """What became of one check.

    Args:
        check: its name.
        promise: what it saw to.
        law: the docstring to read.
        result: `kept`, `broken`, or `not offered` by this store.
        reason: expected and actual, or why it is not offered; empty where it is kept.
    """

    check: str
    promise: str
    law: str
    result: Result
    reason: str = ""

    @classmethod
    def on(cls, check: Check, result: Result, reason: str = "") -> Verdict:
        """The verdict on `check`."""
        return cls(check.name, check.promise, check.law, result, reason)


class Report(msgspec.Struct, frozen=True):
    """All verdicts on one store."""

    store: str
    verdicts: Sequence[Verdict]

    @property
    def broken(self) -> list[Verdict]:
        """The verdicts on promises that are not kept."""
        return [one for one in self.verdicts if one.result == "broken"]

    @property
    def ok(self) -> bool:
        """Whether something was checked, and nothing was broken."""
        return not self.broken and any(one.result == "kept" for one in self.verdicts)

    def json(self) -> str:
        """The report as one JSON object."""
        return msgspec.json.encode({"ok": self.ok, **msgspec.to_builtins(self)}).decode()

    def text(self, *, verbose: bool = False) -> str:
        """The report as lines: what is broken with its reason, then what is not offered.

        Args:
            verbose: also every promise that is kept.
        """
        lines = [line for one in self.broken for line in _broken(one)]
        if verbose:
            kept = [one for one in self.verdicts if one.result == "kept"]
            lines += [f"kept    {one.check}" for one in kept]
        missing: dict[str, int] = {}
        for one in self.verdicts:
            if one.result == "not offered":
                missing[one.reason] = missing.get(one.reason, 0) + 1
        lines += [f"not offered: {reason} ({count} checks)" for reason, count in missing.items()]
        return "\n".join([*lines, self._sum()])

    def _sum(self) -> str:
        counts = [
            f"{sum(one.result == result for one in self.verdicts)} {result}"
            for result in ("kept", "broken", "not offered")
        ]
        return f"{self.store}: {', '.join(counts)}"


def _broken(verdict: Verdict) -> list[str]:
    lines = [f"BROKEN  {verdict.check}", *_wrapped(verdict.promise)]
    for line in verdict.reason.splitlines():
        lines += _wrapped(line, "    ! ")
    return [*lines, f"        read: the docstring of {verdict.law}", ""]


def _wrapped(text: str, first: str = "        ") -> list[str]:
    rest = " " * len(first)
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest) or [first]
