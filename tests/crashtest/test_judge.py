"""The verdicts, on stories made by hand: also those that a sound runtime never lets happen."""

from typing import Any

import msgspec
import pytest

from agentkit import tool
from agentkit.testing.crashtest.judge import Problem, Rules, Trial, compare, policy_of
from agentkit.testing.crashtest.report import CrashReport, Finding, ToolReport
from agentkit.testing.crashtest.story import CallStory, Place, Story
from agentkit.testing.crashtest.summary import findings_of, tool_reports
from agentkit.testing.crashtest.watch import Line, LineKind
from agentkit.tools import CannotHappen

PLACE = Place("worker", 1, 0)
KEY = "0123456789abcdef"


def call(**facts: Any) -> CallStory:
    """One call of `act`, done as it should be."""
    given = {"keys": (KEY,), "outcome": "ok", "content": "done", **facts}
    return CallStory(PLACE, "act", **given)


def story(*calls: CallStory, **facts: Any) -> Story:
    """A finished run."""
    given = {"run": "r1", "status": "finished", "output": "Done.", "message": "", **facts}
    return Story(texts=(given["output"],), calls=calls or (call(),), **given)


def lines(*kinds: LineKind, key: str = KEY, arguments: str = "x", value: str = "") -> list[Line]:
    """What the log has of `act`."""
    return [Line(kind, "act", key, arguments, 1, 1, 1, value) for kind in kinds]


def judged(
    policy: str, trial_lines: list[Line], *calls: CallStory, calm: Any = None, **facts: Any
) -> list[Problem]:
    """A trial beside an undisturbed run."""
    before = calm or lines("entered", "left")
    undisturbed = Trial((), 0, story(), tuple(before))
    rules = Rules((undisturbed, undisturbed), {"act": policy})
    trial = Trial(("tool:after:act@1",), 1, story(*calls, **facts), tuple(trial_lines))
    return compare(trial, rules)


TWICE = lines("entered", "entered", "left")


@pytest.mark.parametrize(
    ("policy", "trial_lines", "facts", "expected"),
    [
        ("ask", lines("entered", "left"), {}, []),
        ("ask", TWICE, {}, ["doubled"]),
        ("tell model", TWICE, {}, ["doubled"]),
        ("ask", TWICE, {"answers": ("run_again",)}, []),
        ("idempotent", TWICE, {}, []),
        ("idempotent", TWICE, {"keys": (KEY, "another")}, ["doubled"]),
        ("idempotent", TWICE + lines("entered", arguments="y"), {}, ["doubled"]),
        ("reconcile", TWICE, {}, []),
        ("reconcile", lines("entered", "left", "entered", "left"), {}, ["doubled"]),
        ("transactional", TWICE, {}, []),
        ("ask", lines("entered"), {}, ["lost"]),
        ("ask", [], {}, ["lost"]),
        ("reconcile", [], {}, ["lost"]),
        ("reconcile", lines("entered"), {}, []),
        ("idempotent", lines("entered", "raised"), {"outcome": "error"}, ["lost"]),
        ("idempotent", lines("entered", "left"), {"outcome": "error"}, ["diverged"]),
        ("ask", lines("entered"), {"outcome": "skipped", "answers": ("skip",)}, []),
        ("ask", lines("entered"), {"outcome": "error", "answers": ("failed",)}, []),
        ("tell model", lines("entered"), {"outcome": "in_doubt"}, []),
        ("ask", lines("entered", "left"), {"content": "other"}, ["diverged"]),
        ("read-only", [], {"keys": (), "outcome": "error", "content": "no"}, ["lost"]),
    ],
)
def test_what_a_call_left_decides_its_verdict(
    policy: str, trial_lines: list[Line], facts: Any, expected: list[str]
) -> None:
    """Entrances, keys, arguments, outcome and result, each against what the tool says of itself."""
    assert expected == [one.verdict for one in judged(policy, trial_lines, call(**facts))]


@pytest.mark.parametrize(("effects", "expected"), [(0, ["lost"]), (1, []), (2, ["doubled"])])
def test_told_effects_outweigh_entrances(effects: int, expected: list[str]) -> None:
    """Where a test double tells its effects, an idempotent tool that acts twice is seen."""
    calm = [*lines("entered", "left"), *lines("effect", value="charge")]
    seen = TWICE + lines("effect", value="charge") * effects

    assert expected == [one.verdict for one in judged("idempotent", seen, calm=calm)]


def test_effects_of_a_tool_that_says_it_has_none_are_counted() -> None:
    """Without a key nobody can tell the calls apart, so all of the tool's are taken together."""
    calm = lines("effect", key="", value="report")
    found = judged("read-only", calm * 2, call(keys=()), calm=calm)

    assert [("act", "doubled")] == [one[:2] for one in found]


def test_ids_and_keys_of_a_run_are_no_difference() -> None:
    """They differ from run to run by design; whole or shortened, they are taken out."""
    undisturbed = Trial((), 0, story(call(content=f"r1 got {KEY[:8]}")), ())
    rules = Rules((undisturbed, undisturbed), {"act": "read-only"})
    other = call(content="r2 got fedcba98", keys=("fedcba9876543210",))
    left = lines("entered", "left", key="fedcba9876543210")

    assert [] == compare(Trial((), 1, story(other, run="r2"), tuple(left)), rules)


def test_a_run_that_did_not_finish_is_stuck() -> None:
    """Whatever state it is in; the message tells its reason."""
    [parked] = judged("ask", [], status="parked", message="recoveries: too many")
    rules = Rules((Trial((), 0, story(), ()),) * 2, {})
    [nothing] = compare(Trial((), 1, None, (), "ValueError: oops"), rules)

    assert ("", "stuck") == parked[:2]
    assert "it is parked (recoveries: too many)" in parked.what
    assert Problem("", "stuck", "ValueError: oops") == nothing


def test_a_broken_invariant_is_told_as_one() -> None:
    """It is no fault of the user's."""
    found = judged("ask", lines("entered", "left"), violations=("I5: a gap",))

    assert [Problem("", "broken", "I5: a gap")] == found


def test_other_words_or_calls_of_the_model_are_a_difference_of_the_run() -> None:
    """Only where no tool explains them, and nobody decided otherwise."""
    other = judged("ask", lines("entered", "left"), output="Other.")
    more = judged("ask", lines("entered", "left"), call(), CallStory(Place("worker", 2, 0), "act"))
    fewer = judged("ask", [], CallStory(Place("worker", 7, 0), "act"))
    decided = judged("ask", [], call(answers=("skip",)), output="Other.")

    assert [("", "diverged")] == [one[:2] for one in other]
    assert "'Other.' instead of 'Done.'" in other[0].what
    assert [("", "diverged")] == [one[:2] for one in more]
    assert [("act", "diverged")] == [one[:2] for one in fewer]
    assert [] == decided


def test_the_heaviest_finding_of_a_tool_is_its_verdict() -> None:
    """Findings come heaviest first, each with the command that repeats it."""
    undisturbed = Trial((), 0, story(), tuple(lines("entered", "left")))
    rules = Rules((undisturbed, undisturbed), {"act": "ask", "idle": "read-only"})
    trials = [
        Trial(("a@1",), 1, story(call(content="other")), tuple(lines("entered", "left"))),
        Trial(("b@1", "c@2"), 2, story(call()), tuple(TWICE)),
    ]
    findings = findings_of(trials, rules, replay="again --at {at}")
    act, idle = tool_reports(trials, rules, findings)

    assert ["doubled", "diverged"] == [finding.verdict for finding in findings]
    assert ["again --at b@1,c@2", "again --at a@1"] == [finding.replay for finding in findings]
    assert ("doubled", "untested") == (act.verdict, idle.verdict)


def test_an_idempotent_tool_that_never_reads_its_key_is_warned_of() -> None:
    """It may be right (a PUT); nobody outside can see it."""
    undisturbed = Trial((), 0, story(), tuple(lines("entered", "left")))
    reading = tuple(msgspec.structs.replace(line, key_read=True) for line in undisturbed.lines)
    rules = Rules((undisturbed, undisturbed), {"act": "idempotent"})
    killed = Trial(("a@1",), 1, story(call(in_flight=1)), undisturbed.lines)
    [never] = tool_reports([killed], rules, [])
    [reads] = tool_reports([killed._replace(lines=reading)], rules, [])

    assert ("safe", "safe") == (never.verdict, reads.verdict)
    assert "never reads" in never.advice
    assert "never reads" not in reads.advice


def test_a_tool_in_whose_flight_nobody_died_is_untested() -> None:
    """That nothing went wrong elsewhere says nothing of it; the advice tells why it is untested."""
    undisturbed = Trial((), 0, story(), tuple(lines("entered", "left")))
    rules = Rules((undisturbed, undisturbed), {"act": "idempotent"})
    elsewhere = Trial(("acquire:before@0",), 1, story(), undisturbed.lines)
    [act] = tool_reports([elsewhere], rules, [])

    assert ("untested", 0, 1) == (act.verdict, act.kills, act.calls)
    assert "no worker was killed while it was in flight" == act.advice


def test_each_kind_of_tool_has_its_policy() -> None:
    """What it says of itself, in a word."""

    def act(item: str) -> str:
        return item

    def look_up() -> CannotHappen:
        return CannotHappen()

    policies = [
        policy_of(tool(**options)(act))
        for options in (
            {"side_effecting": False},
            {"side_effecting": True, "idempotent": True},
            {"side_effecting": True, "reconcile": look_up},
            {"side_effecting": True, "on_in_doubt": "tell_model"},
            {"side_effecting": True},
        )
    ]

    assert ["read-only", "idempotent", "reconcile", "tell model", "ask"] == policies


def test_a_report_can_be_read_in_a_terminal() -> None:
    """One line that says it all, then each tool and each finding; one of a kind is not many."""
    finding = Finding("act", "lost", ("a@1",), "It is gone.", "again --at a@1")
    once = CrashReport("shop:agent", "Go.", 1, 1, 1, 1, 1.25, (), (finding,)).headline()
    report = CrashReport("shop:agent", "Go.", 7, 9, 8, 7, 1.25, (), (finding,), ("a note",))

    assert [
        "shop:agent: NOT SAFE, 1 finding · 7 kills in 9 runs, 7 of 8 places · 1.2 s",
        "lost: act, killed at a@1",
        "    It is gone.",
        "    replay: again --at a@1",
        "note: a note",
    ] == report.text().splitlines()
    assert "shop:agent: NOT SAFE, 1 finding · 1 kill in 1 run, 1 of 1 place · 1.2 s" == once
    with pytest.raises(KeyError, match="'act'; there are "):
        report.tool("act")


def test_repeats_that_count_once_are_told_as_such() -> None:
    """A sink that honours the key has one effect, a transaction keeps one, others have all."""

    def effects(policy: str, most: int) -> str:
        tool = ToolReport(
            name="act",
            policy=policy,
            calls=1,
            kills=1,
            fewest_effects=1,
            most_effects=most,
            repeats=0,
            in_doubt=0,
            verdict="safe",
            advice="",
        )
        return tool.effects

    assert ["1-2, one key", "1-2, one kept", "1-2"] == [
        effects(policy, 2) for policy in ("idempotent", "transactional", "ask")
    ]
    assert "1" == effects("transactional", 1)
