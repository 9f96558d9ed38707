"""What the crash test says of agents with and without mistakes: real processes, real SIGKILLs."""

from pathlib import Path

import pytest

from agentkit.testing.crashtest import CrashReport, crash_test
from tests.crashtest import planted

HERE = "tests.crashtest.planted"


@pytest.fixture(scope="module")
def sound() -> CrashReport:
    """The sound agent, killed everywhere."""
    return crash_test(f"{HERE}:sound", jobs=2)


def test_a_sound_agent_is_safe_wherever_it_is_killed(sound: CrashReport) -> None:
    """Every place is tried, each with a kill, and every kind of border is among them."""
    assert sound.safe, sound.text()
    assert sound.borders == sound.tested == sound.kills
    assert sound.runs == sound.kills + 2
    assert 30 < sound.kills


def test_each_policy_shows_in_the_numbers(sound: CrashReport) -> None:
    """A read is repeated, an idempotent tool repeated with its key, a plain one asked about."""
    look, pay, mail = (sound.tool(name) for name in ("look", "pay", "mail"))

    assert ("read-only", "safe", 0) == (look.policy, look.verdict, look.in_doubt)
    assert ("idempotent", "safe", 0) == (pay.policy, pay.verdict, pay.in_doubt)
    assert ("ask", "in doubt") == (mail.policy, mail.verdict)
    assert look.repeats
    assert pay.repeats
    assert 0 == mail.repeats
    assert 0 < mail.in_doubt == mail.kills
    assert "1" == pay.effects == mail.effects
    assert "idempotent=True" in mail.advice


def test_a_strict_test_can_refuse_questions(sound: CrashReport) -> None:
    """`assert_safe()` allows that a person is asked; `in_doubt=False` does not."""
    sound.assert_safe()

    with pytest.raises(AssertionError, match="kills left mail in doubt"):
        sound.assert_safe(in_doubt=False)


@pytest.fixture(scope="module")
def mistaken() -> CrashReport:
    """An agent each of whose tools has a mistake, killed where the mistakes show."""
    return crash_test(planted.mistaken, borders=["tool:after", "append:after"], jobs=2)


@pytest.mark.parametrize(
    ("tool", "verdict", "says"),
    [
        ("shouted", "doubled", "was entered 2 times, 0 of them because somebody said so"),
        ("liar", "doubled", "had the effect 'charge' 2 times instead of 1"),
        ("spy", "doubled", "says side_effecting=False and had the effect 'report' 2 times"),
        ("hasty", "lost", "had the effect 'order' 0 times instead of 1, and is recorded as 'ok'"),
        ("locked", "lost", "never had its effect; the model was told 'RuntimeError: somebody"),
        ("number", "diverged", "a variable of the module, a cache, the number of the attempt"),
    ],
)
def test_a_mistake_is_found_and_explained(
    mistaken: CrashReport, tool: str, verdict: str, says: str
) -> None:
    """The finding says which tool, where the worker was killed, what is wrong and what to do."""
    [heaviest, *_] = [finding for finding in mistaken.findings if finding.tool == tool]

    assert verdict == heaviest.verdict == mistaken.tool(tool).verdict, mistaken.text()
    assert says in heaviest.what


def test_an_agent_with_mistakes_fails_its_test_with_the_whole_report(mistaken: CrashReport) -> None:
    """Every tool, every finding, and how to do each of them again."""
    assert not mistaken.safe
    with pytest.raises(
        AssertionError, match=r"NOT SAFE(?s:.*)replay: crash_test\(…, at='tool:after"
    ):
        mistaken.assert_safe()


@pytest.mark.parametrize(
    ("name", "tool", "says"),
    [
        ("restless", "who", "So it does in runs that nobody kills"),
        ("moody", "", "a model for tests must answer from the transcript"),
    ],
)
def test_what_differs_in_any_run_is_told_apart(name: str, tool: str, says: str) -> None:
    """A result that depends on chance, and a model that does, diverge without any kill."""
    report = crash_test(f"{HERE}:{name}", at="acquire:before@0")

    assert [(tool, "diverged")] == [(one.tool, one.verdict) for one in report.findings]
    assert says in report.findings[0].what


def test_a_tool_that_tells_the_model_is_in_doubt_and_not_lost() -> None:
    """What its policy says is not a fault."""
    report = crash_test(f"{HERE}:telling", at="tool:after:shout@1")

    assert report.safe, report.text()
    assert ("in doubt", 1) == (report.tool("shout").verdict, report.tool("shout").in_doubt)


def test_tools_whose_results_vary_can_be_named() -> None:
    """`varies`: their results are not compared."""
    assert crash_test(f"{HERE}:restless", at="acquire:before@0", varies=["who"]).safe


def test_the_world_is_set_back_before_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`reset` runs before each run, and not again before the worker that carries it on."""
    monkeypatch.setenv("PLANTED_WORLD", str(tmp_path / "world"))

    report = crash_test(planted.remembering, reset=planted.wipe, at="model:before@2")

    assert report.safe, report.text()
    assert "a" == (tmp_path / "world").read_text()


def test_the_recovery_is_killed_too() -> None:
    """`pairs`: after each first death, one at each border that the successor passes."""
    report = crash_test(f"{HERE}:made", pairs=True, borders=["tool:after"], max_kills=6, jobs=2)

    assert report.safe, report.text()
    assert 6 == report.tested
    assert 1 + 2 * 5 == report.kills
    assert any("pairs of kills were tried" in note for note in report.notes)


def test_kills_can_be_kept_to_one_tool_and_to_few_borders() -> None:
    """`tool`: from its intent to its outcome; `borders` and `kills_per_border` narrow it more."""
    around = crash_test(f"{HERE}:sound", tool="pay", kills_per_border=1, jobs=2)
    inside = crash_test(f"{HERE}:sound", tool="pay", borders=["tool"])

    assert (5, 5) == (around.kills, around.tool("pay").kills)
    assert (2, 2) == (inside.kills, inside.tool("pay").kills)
    assert 0 == around.tool("mail").kills


def test_journals_and_logs_can_be_kept(tmp_path: Path) -> None:
    """`keep` leaves a folder for each run, in which everything is there to be looked at."""
    folder = tmp_path / "kept"
    report = crash_test(f"{HERE}:made", at="model:before@1", keep=str(folder))

    assert str(folder) == report.kept
    runs = sorted(path for path in folder.iterdir() if path.is_dir())
    assert report.runs == len(runs)
    assert (runs[-1] / "runs.db").exists()
    assert (runs[-1] / "effects.jsonl").exists()


@pytest.mark.slow
def test_workers_that_import_threads_are_started_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork would carry the module's locks over without its threads; the report says so."""
    (tmp_path / "threaded.py").write_text(
        "import threading\n"
        "from tests.crashtest.planted import agent, look\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "made = agent(look)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    report = crash_test("threaded:made", at="model:before@1")

    assert report.safe, report.text()
    assert 1 == report.kills
    assert "started 1 threads" in report.notes[0]


@pytest.mark.slow
def test_a_run_that_hangs_after_a_kill_is_a_finding() -> None:
    """A worker that does not end in its time is killed, and the run counts as stuck."""
    report = crash_test(f"{HERE}:hanging", at="tool:after:shy@1", timeout_seconds=2.0)

    assert ["stuck"] == [finding.verdict for finding in report.findings]
    assert "did not end" in report.findings[0].what
    assert "raise --timeout" in report.findings[0].what


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hundreds_of_pairs_of_deaths_are_safe() -> None:
    """The sound agent, killed at every border and its successor again at many."""
    report = crash_test(f"{HERE}:sound", pairs=True, max_kills=400, jobs=2)

    assert report.safe, report.text()
    assert 400 == report.tested
    assert report.kills > 700
