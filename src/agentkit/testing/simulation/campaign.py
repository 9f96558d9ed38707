"""Many schedules, added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from agentkit.testing.simulation._policies import POLICIES, UNSAFE
from agentkit.testing.simulation._weather import KINDS
from agentkit.testing.simulation.schedule import SIGHTS, Outcome

__all__ = ["MAX_FAILED_SEEDS", "Failed", "Tally", "replay_command"]

MAX_FAILED_SEEDS: Final = 20
"""A campaign stops when so many schedules have failed: they mostly tell of one bug."""

_KIND_COLUMN = 24


class Failed(msgspec.Struct, frozen=True):
    """A schedule with violations: invariant and text each."""

    seed: int
    violations: tuple[tuple[str, str], ...]


class Tally(msgspec.Struct):
    """The sums of a campaign, or of a part of one."""

    schedules: int = 0
    steps: int = 0
    completed: int = 0
    cancelled: int = 0
    takeovers: int = 0
    asked_for: int = 0
    seen: dict[str, int] = {}
    faults: dict[str, int] = {}
    calls: dict[str, int] = {}
    doubled: dict[str, int] = {}
    failed: list[Failed] = []

    def add(self, outcome: Outcome) -> None:
        """Count one schedule in."""
        wrong = tuple((one.invariant, one.what) for one in outcome.violations)
        self.merge(
            Tally(
                schedules=1,
                steps=outcome.steps,
                completed=int(outcome.completed),
                cancelled=int(outcome.cancelled),
                takeovers=outcome.takeovers,
                seen=outcome.seen,
                asked_for=outcome.asked_for,
                faults=outcome.faults,
                calls=outcome.calls,
                doubled=outcome.doubled,
                failed=[Failed(outcome.seed, wrong)] if wrong else [],
            )
        )

    def merge(self, other: Tally) -> None:
        """Count another campaign's sums in."""
        self.schedules += other.schedules
        self.steps += other.steps
        self.completed += other.completed
        self.cancelled += other.cancelled
        self.takeovers += other.takeovers
        self.seen = _sum(self.seen, other.seen)
        self.asked_for += other.asked_for
        self.faults = _sum(self.faults, other.faults)
        self.calls = _sum(self.calls, other.calls)
        self.doubled = _sum(self.doubled, other.doubled)
        self.failed = [*self.failed, *other.failed]

    @property
    def sound(self) -> bool:
        """Whether no schedule violated anything, and no safe policy doubled an effect."""
        safe = (times for policy, times in self.doubled.items() if policy not in UNSAFE)
        return not self.failed and not any(safe)

    def report(self, seconds: float) -> str:
        """A text for people, for a campaign that took so long."""
        rate = self.schedules / seconds if seconds else 0.0
        lines = [
            f"{self.schedules} schedules in {seconds:.1f} s: {rate:.1f} schedules/s",
            f"{self.completed} runs completed, {self.cancelled} cancelled",
            f"{self.takeovers} takeovers, {self.steps} callbacks",
            *(f"  {what:{_KIND_COLUMN}} {self.seen.get(what, 0):9}" for what in SIGHTS),
            "",
            "faults fired",
            *(f"  {kind:{_KIND_COLUMN}} {self.faults.get(kind, 0):9}" for kind in KINDS),
            "",
            "policy           calls   doubled effects",
        ]
        for policy in dict.fromkeys(POLICIES.values()):
            doubled = "-" if policy == "read" else str(self.doubled.get(policy, 0))
            note = "  (unsafe on purpose)" if policy in UNSAFE else ""
            lines.append(f"  {policy:10} {self.calls.get(policy, 0):9} {doubled:>9}{note}")
        lines.append(f"  beside these, {self.asked_for} because a person ordered it")
        return "\n".join([*lines, "", *self._verdict()])

    def _verdict(self) -> Iterable[str]:
        if self.sound:
            yield "no invariant is violated"
        for failed in self.failed[:MAX_FAILED_SEEDS]:
            yield f"seed {failed.seed}: {len(failed.violations)} violations"
            yield from (f"  {name}  {what}" for name, what in failed.violations)
            yield f"  replay: {replay_command(failed.seed)}"


def replay_command(seed: int) -> str:
    """What shows a schedule again."""
    return f"python -m agentkit.testing.simulation --seed {seed} --schedules 1 --trace"


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(first) + Counter(second)).items()))
