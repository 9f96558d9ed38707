"""What a crash test found: for each tool a verdict, and what to do about it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "GOOD",
    "SCHEMA_VERSION",
    "CrashReport",
    "Finding",
    "ToolReport",
    "Verdict",
    "counted",
    "told",
]

SCHEMA_VERSION = 1
"""Of the JSON form; grows when a field changes its meaning or goes."""

Verdict: TypeAlias = Literal[
    "safe", "untested", "in doubt", "diverged", "lost", "doubled", "stuck", "broken"
]
"""In order of weight. `untested`: nobody called it, or no worker died while a call was under way.
`in doubt`: a kill left a call in doubt, and a person was asked or the model was told, as the tool's
policy says. `diverged`: the run ended in another way than one that nobody killed. `lost`: a call
has an outcome and no effect. `doubled`: the runtime acted twice by itself. Of a run and not of a
tool: `stuck` (it did not end), `broken` (an invariant of its journal does not hold)."""

GOOD: frozenset[Verdict] = frozenset({"safe", "untested", "in doubt"})
"""Verdicts that leave a crash test safe."""


class Finding(msgspec.Struct, frozen=True):
    """Something that a kill brought out.

    Args:
        tool: whose; empty for the run as a whole.
        verdict: what it is.
        kills: where workers were killed, in order; empty for a run that nobody killed.
        what: a sentence or two about it.
        replay: the command that does it again; empty where there is none.
    """

    tool: str
    verdict: Verdict
    kills: tuple[str, ...]
    what: str
    replay: str = ""


class ToolReport(msgspec.Struct, frozen=True):
    """One tool of the agent.

    Args:
        name: its name.
        policy: what it says of itself: `read-only`, `idempotent`, `ask`, `tell model`, `reconcile`
            or `transactional`.
        calls: how often one run calls it.
        kills: how many workers died while a call of it was under way.
        fewest_effects: of one call, over all runs.
        most_effects: of one call, over all runs.
        repeats: how often a call was entered again by the runtime itself.
        in_doubt: how many kills left a call in doubt: a person was asked, or the model was told.
        verdict: the heaviest of what was found.
        advice: what to do, or why it is safe.
    """

    name: str
    policy: str
    calls: int
    kills: int
    fewest_effects: int
    most_effects: int
    repeats: int
    in_doubt: int
    verdict: Verdict
    advice: str

    @property
    def effects(self) -> str:
        """Effects of one call: `1`, or `0-1` where it differs from run to run. Repeats of an
        idempotent tool are one effect for its sink: `1-2, one key`. Of a transactional tool all but
        the last were rolled back: `1-2, one kept`.
        """
        few, most = self.fewest_effects, self.most_effects
        shown = str(most) if few == most else f"{few}-{most}"
        once = {"idempotent": ", one key", "transactional": ", one kept"}
        return shown + once.get(self.policy, "") if most > 1 else shown


class CrashReport(msgspec.Struct, frozen=True):
    """The outcome of a crash test.

    Args:
        agent: the reference of the agent.
        task: what it was asked to do.
        kills: how many workers got SIGKILL.
        runs: how many runs there were, the ones that nobody killed included.
        borders: at how many places a run can be killed.
        tested: how many of these places (or pairs of them) were tried.
        seconds: how long it took.
        tools: one report each.
        findings: everything that is not right, heaviest first.
        notes: what else is worth knowing.
        kept: the folder with journals and logs, where it was kept.
        version: of this form.
    """

    agent: str
    task: str
    kills: int
    runs: int
    borders: int
    tested: int
    seconds: float
    tools: tuple[ToolReport, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    kept: str = ""
    version: int = SCHEMA_VERSION

    @property
    def safe(self) -> bool:
        """Whether no tool was doubled, lost or diverged, and every run ended."""
        return not self.findings

    def tool(self, name: str) -> ToolReport:
        """The report of one tool.

        Raises:
            KeyError: the agent has no such tool.
        """
        found = next((tool for tool in self.tools if tool.name == name), None)
        if found is None:
            raise KeyError(f"{name!r}; there are {', '.join(tool.name for tool in self.tools)}")
        return found

    def assert_safe(self, *, in_doubt: bool = True) -> None:
        """Fail a test with the whole report, unless it is safe.

        Args:
            in_doubt: whether kills may leave calls in doubt, for a person to settle.

        Raises:
            AssertionError: something was found.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test
        doubtful = [tool.name for tool in self.tools if tool.in_doubt]
        if self.safe and (in_doubt or not doubtful):
            return
        reason = f"kills left {', '.join(doubtful)} in doubt\n" if self.safe else ""
        raise AssertionError(f"{reason}{self.text()}")

    def headline(self) -> str:
        """One line that says it all."""
        verdict = "safe" if self.safe else f"NOT SAFE, {counted(len(self.findings), 'finding')}"
        return (
            f"{self.agent}: {verdict} · {counted(self.kills, 'kill')} in "
            f"{counted(self.runs, 'run')}, {self.tested} of {counted(self.borders, 'place')} · "
            f"{self.seconds:.1f} s"
        )

    def text(self) -> str:
        """The report for a terminal without a table."""
        lines = [self.headline()]
        for tool in self.tools:
            lines.append(
                f"  {tool.name} ({tool.policy}): {tool.verdict} · "
                f"{counted(tool.kills, 'kill')} in flight, effects a call: {tool.effects}, "
                f"{counted(tool.repeats, 'repeat')}, {tool.in_doubt} in doubt"
            )
            lines.append(f"    {tool.advice}")
        lines += [line for finding in self.findings for line in told(finding)]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def counted(count: int, what: str) -> str:
    """`1 kill`, `2 kills`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def told(finding: Finding) -> list[str]:
    """A finding in two or three lines."""
    where = " then ".join(finding.kills) or "no kill at all"
    lines = [f"{finding.verdict}: {finding.tool or 'the run'}, killed at {where}", finding.what]
    if finding.replay:
        lines.append(f"replay: {finding.replay}")
    return [lines[0], *(f"    {line}" for line in lines[1:])]
