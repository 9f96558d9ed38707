"""From trials to the report: counts, verdicts, advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentkit.testing.crashtest.judge import Problem, Rules, Trial, compare, effects_of, lines_of
from agentkit.testing.crashtest.report import Finding, ToolReport, Verdict, counted
from agentkit.testing.crashtest.story import CallStory

__all__ = ["findings_of", "tool_reports"]

_WEIGHT: tuple[Verdict, ...] = (
    "untested",
    "safe",
    "in doubt",
    "stuck",
    "diverged",
    "lost",
    "doubled",
    "broken",
)


def findings_of(trials: Sequence[Trial], rules: Rules, *, replay: str) -> tuple[Finding, ...]:
    """Everything that is wrong with any of the trials, heaviest first.

    Args:
        trials: those of killed runs.
        rules: what they are held against.
        replay: the command that repeats a kill, with `{at}` for where.
    """
    found = [
        Finding(*problem[:2], trial.kills, problem.what, _replay(replay, trial.kills))
        for trial in trials
        for problem in compare(trial, rules)
    ]
    calm = rules.undisturbed[0]
    found += [Finding(*one[:2], (), one.what) for one in _doubled_undisturbed(calm, rules)]
    return tuple(sorted(found, key=lambda one: -_WEIGHT.index(one.verdict)))


def tool_reports(
    trials: Sequence[Trial], rules: Rules, findings: Sequence[Finding]
) -> tuple[ToolReport, ...]:
    """One for each tool of the agent."""
    return tuple(
        _ToolCount(name, policy, trials, rules).report(findings)
        for name, policy in rules.policies.items()
    )


class _ToolCount:
    """What can be counted about one tool over all trials."""

    def __init__(self, name: str, policy: str, trials: Sequence[Trial], rules: Rules) -> None:
        calm = rules.undisturbed[0].story
        self._name, self._policy = name, policy
        self._calls = [call for call in calm.calls if call.tool == name] if calm else []
        self._effects: list[int] = []
        self._kills = self._repeats = self._in_doubt = 0
        self._key_read = False
        for trial in [*rules.undisturbed, *trials]:
            self._take(trial)

    def report(self, findings: Sequence[Finding]) -> ToolReport:
        """The report, with the heaviest of the tool's findings as its verdict."""
        verdict: Verdict = "safe" if self._calls and self._kills else "untested"
        if self._in_doubt:
            verdict = "in doubt"
        mine = [one.verdict for one in findings if one.tool == self._name]
        verdict = max([verdict, *mine], key=_WEIGHT.index)
        return ToolReport(
            name=self._name,
            policy=self._policy,
            calls=len(self._calls),
            kills=self._kills,
            fewest_effects=min(self._effects, default=0),
            most_effects=max(self._effects, default=0),
            repeats=self._repeats,
            in_doubt=self._in_doubt,
            verdict=verdict,
            advice=self._advice(verdict),
        )

    def _take(self, trial: Trial) -> None:
        calls = [c for c in trial.story.calls if c.tool == self._name] if trial.story else []
        mine = [line for line in trial.lines if line.tool == self._name]
        self._key_read |= any(line.key_read for line in mine)
        self._kills += max((call.in_flight for call in calls), default=0)
        self._in_doubt += sum(call.in_doubt for call in calls)
        if self._policy == "read-only":
            entered = sum(line.kind == "entered" for line in mine)
            self._repeats += max(0, entered - len(calls))
            return
        for call in calls:
            self._effects.append(effects_of(call, trial.lines))
            self._repeats += max(0, _entered(call, trial) - 1 - call.answers.count("run_again"))

    def _advice(self, verdict: Verdict) -> str:
        times = counted(self._repeats, "time")
        if verdict == "untested" and self._calls:
            return "no worker was killed while it was in flight"
        if verdict == "untested":
            return "never called: give the model a turn that calls it"
        if verdict in {"doubled", "lost", "diverged"}:
            return f"see the findings on {self._name} below"
        if verdict == "in doubt":
            return (
                f"side-effecting and not idempotent: {counted(self._in_doubt, 'kill')} "
                f"{_ASKED[self._policy]}. Make the sink honour ctx.idempotency_key and say "
                "idempotent=True, or look the outcome up with reconcile=, to be asked less"
            )
        if self._policy == "read-only":
            return f"repeated {times}, which changes nothing"
        if self._policy == "idempotent" and not self._key_read:
            return (
                f"repeated {times} with the same key, which it never reads: right "
                "only where doing it twice is doing it once (a PUT); else hand the key on"
            )
        if self._policy == "idempotent":
            return f"repeated {times} with the same key and arguments"
        if self._policy == "transactional":
            return (
                f"entered again {times} after its transaction was rolled back: what "
                "it did until then is undone"
            )
        return "no kill left it in doubt"


_ASKED = {"tell model": "had the model told that nobody knows the outcome"}
_ASKED |= dict.fromkeys(("ask", "reconcile", "idempotent", "read-only"), "led to a question")


def _entered(call: CallStory, trial: Trial) -> int:
    return sum(line.kind == "entered" for line in lines_of(call, trial.lines))


def _doubled_undisturbed(calm: Trial, rules: Rules) -> Iterator[Problem]:
    """Double entrances without any kill: something around the tool enters it twice."""
    return (one for one in compare(calm, rules) if one.verdict == "doubled")


def _replay(template: str, kills: tuple[str, ...]) -> str:
    return template.replace("{at}", ",".join(kills))
