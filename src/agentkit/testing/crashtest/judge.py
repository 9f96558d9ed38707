"""Verdicts: a killed run beside one that nobody killed. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentkit.testing.crashtest.report import Verdict
from agentkit.testing.crashtest.story import CallStory, Story
from agentkit.testing.crashtest.watch import Line
from agentkit.tools import Tool

__all__ = ["Problem", "Rules", "Trial", "compare", "effects_of", "lines_of", "policy_of"]

_REPEATABLE = frozenset({"read-only", "idempotent", "transactional"})

_SHORTEST_KEY = 6
"""Tools show shortened keys; a shorter beginning of one could be anything."""


class Trial(NamedTuple):
    """One run.

    Args:
        kills: where its workers were to be killed.
        died: how many of them were.
        story: what it left; `None` where its last worker did not get so far.
        lines: what its tools did.
        trouble: how a worker failed that nobody killed.
    """

    kills: tuple[str, ...]
    died: int
    story: Story | None
    lines: tuple[Line, ...]
    trouble: str = ""


class Rules(NamedTuple):
    """What trials are held against.

    Args:
        undisturbed: two runs that nobody killed.
        policies: of each tool, see `policy_of`.
        varies: tools whose results may differ from run to run.
    """

    undisturbed: tuple[Trial, Trial]
    policies: Mapping[str, str]
    varies: Collection[str] = ()


class Problem(NamedTuple):
    """What is wrong with one tool (or with the run, where `tool` is empty) in one trial."""

    tool: str
    verdict: Verdict
    what: str


def policy_of(tool: Tool) -> str:
    """What a tool says of itself, in one word."""
    if getattr(tool, "transactional", False):
        return "transactional"
    if not tool.side_effecting:
        return "read-only"
    if tool.idempotent:
        return "idempotent"
    if tool.reconcile is not None:
        return "reconcile"
    return "tell model" if tool.on_in_doubt == "tell_model" else "ask"


def compare(trial: Trial, rules: Rules) -> list[Problem]:
    """All that is wrong with a trial."""
    calm, story = rules.undisturbed[0].story, trial.story
    if calm is None or story is None:
        return [Problem("", "stuck", trial.trouble or "the run left nothing")]
    if story.status != "finished":
        what = f"the run did not finish after its worker was killed: it is {story.status}"
        return [Problem("", "stuck", f"{what} ({trial.trouble or story.message or 'no reason'})")]
    found = [Problem("", "broken", what) for what in story.violations]
    for expected in calm.calls:
        seen = story.call(expected.place)
        if seen is None or seen.tool != expected.tool:
            what = f"{_label(expected)} was not made in this run: the model answered otherwise"
            found.append(Problem(expected.tool, "diverged", what))
        else:
            found += _of_call(expected, seen, trial, rules)
    found += _unkeyed_effects(trial, rules)
    decided = any(call.by_decision for call in story.calls)
    if not found and not decided and not rules.varies:
        found += _of_run(calm, story)
    return found


def lines_of(call: CallStory, lines: Sequence[Line]) -> list[Line]:
    """What was seen of a call with a key; of others nobody can tell whose lines are whose."""
    return [line for line in lines if line.key and line.key in call.keys]


def effects_of(call: CallStory, lines: Sequence[Line]) -> int:
    """How often a call acted: as its test double told, else how often the tool returned."""
    mine = lines_of(call, lines)
    told = sum(line.kind == "effect" for line in mine)
    return told or sum(line.kind == "left" for line in mine)


def _of_call(expected: CallStory, seen: CallStory, trial: Trial, rules: Rules) -> Iterator[Problem]:
    policy = rules.policies.get(seen.tool, "ask")
    doubled = _doubled(seen, trial, policy) or _more_effects(expected, seen, trial, rules)
    if doubled:
        yield Problem(seen.tool, "doubled", doubled)
    if seen.by_decision:
        return
    lost = _lost(expected, seen, trial, policy) or _fewer_effects(expected, seen, trial, rules)
    if lost:
        yield Problem(seen.tool, "lost", lost)
    elif seen.outcome != expected.outcome:
        what = f"{_label(seen)} ended with {seen.outcome!r} instead of {expected.outcome!r}"
        yield Problem(seen.tool, "diverged", f"{what}: {seen.content[:200]!r}")
    elif seen.tool not in rules.varies:
        yield from _result(expected, seen, trial, rules)


def _doubled(seen: CallStory, trial: Trial, policy: str) -> str:
    mine = lines_of(seen, trial.lines)
    entered = [line for line in mine if line.kind == "entered"]
    asked_for = seen.answers.count("run_again")
    left = sum(line.kind == "left" for line in mine)
    if policy == "reconcile":
        if left > 1 + asked_for:
            return f"{_label(seen)} came to its end {left} times: reconcile let it run once more"
        return ""
    if policy not in _REPEATABLE and len(entered) > 1 + asked_for:
        return (
            f"{_label(seen)} was entered {len(entered)} times, {asked_for} of them because "
            "somebody said so: it is side-effecting and not idempotent"
        )
    if policy == "idempotent" and len(seen.keys) > 1:
        return f"{_label(seen)} was repeated with another key: {', '.join(seen.keys)}"
    if policy == "idempotent" and len({line.arguments for line in entered}) > 1:
        return f"{_label(seen)} was repeated with other arguments under the same key"
    return ""


def _more_effects(expected: CallStory, seen: CallStory, trial: Trial, rules: Rules) -> str:
    calm, now = _told(expected, rules.undisturbed[0]), _told(seen, trial)
    asked_for = seen.answers.count("run_again")
    for what, times in now.items():
        if times > calm[what] * (1 + asked_for):
            return (
                f"{_label(seen)} had the effect {what!r} {times} times instead of {calm[what]}: "
                "what it acts on does not honour the key; hand ctx.idempotency_key on to it"
            )
    return ""


def _fewer_effects(expected: CallStory, seen: CallStory, trial: Trial, rules: Rules) -> str:
    calm, now = _told(expected, rules.undisturbed[0]), _told(seen, trial)
    for what, times in calm.items():
        if now[what] < times:
            return (
                f"{_label(seen)} had the effect {what!r} {now[what]} times instead of {times}, and "
                f"is recorded as {seen.outcome!r}: {seen.content[:200]!r}. A tool that is entered "
                "again must finish what an earlier attempt began, or say that it cannot tell "
                "(raise OutcomeUnknown)"
            )
    return ""


def _lost(expected: CallStory, seen: CallStory, trial: Trial, policy: str) -> str:
    mine = lines_of(seen, trial.lines)
    completed = any(line.kind in {"left", "effect"} for line in mine)
    looked_up = policy == "reconcile" and bool(mine)
    if expected.outcome != "ok" or completed or looked_up:
        return ""
    if seen.outcome == "ok" and seen.keys:
        return f"{_label(seen)} is recorded as done, and the tool never came to its end"
    if seen.outcome != "ok":
        return (
            f"{_label(seen)} ended with {seen.outcome!r} and never had its effect; the model was "
            f"told {seen.content[:200]!r}"
        )
    return ""


def _unkeyed_effects(trial: Trial, rules: Rules) -> Iterator[Problem]:
    """Effects of tools that say they have none, so that each of their calls may run again."""
    calm = _unkeyed(rules.undisturbed[0])
    for (tool, what), times in _unkeyed(trial).items():
        if times > calm[tool, what]:
            text = (
                f"it says side_effecting=False and had the effect {what!r} {times} times instead "
                f"of {calm[tool, what]}: say side_effecting=True"
            )
            yield Problem(tool, "doubled", text)


def _result(expected: CallStory, seen: CallStory, trial: Trial, rules: Rules) -> Iterator[Problem]:
    calm, other, story = rules.undisturbed[0].story, rules.undisturbed[1].story, trial.story
    if calm is None or other is None or story is None:
        return
    before, now = _comparable(expected.content, calm), _comparable(seen.content, story)
    if before == now:
        return
    again = other.call(expected.place)
    what = f"{_label(seen)} gave {now[:200]!r} instead of {before[:200]!r}."
    if again is not None and _comparable(again.content, other) != before:
        why = (
            "So it does in runs that nobody kills: it depends on the time, on chance or on the "
            "world outside. Set the world back before each run (--reset), or say that its results "
            f"may vary (--varies {seen.tool})"
        )
    else:
        why = (
            "It depends on what its process did before: a variable of the module, a cache, the "
            "number of the attempt. Keep such state outside the process, or take the value through "
            "`await ctx.record('name', fn)`: a later attempt is given the recorded one"
        )
    yield Problem(seen.tool, "diverged", f"{what} {why}")


def _of_run(calm: Story, story: Story) -> Iterator[Problem]:
    places = [call.place for call in story.calls if calm.call(call.place) is None]
    texts = [_comparable(text, story) for text in (*story.texts, story.output)]
    before = [_comparable(text, calm) for text in (*calm.texts, calm.output)]
    if places:
        more = "one call" if len(places) == 1 else f"{len(places)} calls"
        yield Problem("", "diverged", f"the model made {more} more than undisturbed")
    elif texts != before:
        pairs = zip([*before, ""], [*texts, ""], strict=False)
        first = next(((a, b) for a, b in pairs if a != b), ("", ""))
        what = (
            f"the model said {first[1][:200]!r} instead of {first[0][:200]!r}, though every tool "
            "gave the same: a model for tests must answer from the transcript it is shown, not "
            "from a counter or the time"
        )
        yield Problem("", "diverged", what)


def _told(call: CallStory, trial: Trial) -> Counter[str]:
    mine = lines_of(call, trial.lines)
    return Counter(line.value for line in mine if line.kind == "effect")


def _unkeyed(trial: Trial) -> Counter[tuple[str, str]]:
    effects = [line for line in trial.lines if line.kind == "effect" and not line.key]
    return Counter((line.tool, line.value) for line in effects)


def _comparable(text: str, story: Story) -> str:
    """A text without what is different in every run by design: its id and its keys."""
    for call in story.calls:
        for key in call.keys:
            for length in range(len(key), _SHORTEST_KEY - 1, -1):
                text = text.replace(key[:length], f"<key {call.place.turn}.{call.place.index}>")
    return text.replace(story.run, "<run>")


def _label(call: CallStory) -> str:
    return f"{call.tool} (call {call.place.index + 1} of turn {call.place.turn})"
