"""What became of a run, read from its journal."""

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.types import CallRecord
from agentkit.state.journal.codec import encode_entry
from agentkit.testing.crashtest.story import Place, tell_story

LANE = ":agent:worker"
START = e.RunStarted("Go.", "worker", "fake", "", (), "f", "n")
ASKED = e.QuestionAsked(1, 0, "in_doubt", "act", "{}", "d", ("done", "skip"), "?")


def journal(*bodies: e.Body) -> list[Row]:
    """The rows of a run that began, was answered with one call of `act`, and went on so."""
    answered = e.ModelAnswered(1, "I act.", (CallRecord("c", "act"),), "tool_use")
    begun: tuple[e.Body, ...] = (START, e.LeaseTaken("a", "start"), answered)
    rows: list[Row] = []
    epoch = 1
    for number, body in enumerate([*begun, *bodies], 1):
        epoch += isinstance(body, e.LeaseTaken) and body.why == "takeover"
        lane = "" if isinstance(body, e.RunStarted | e.LeaseTaken) else LANE
        before = rows[-1].check if rows else b""
        entry = e.Entry(number, "", epoch, lane, 1, body)
        rows.append(encode_entry(entry, before=before, run_id="r1"))
    return rows


def test_a_call_that_was_under_way_at_a_takeover_was_in_flight() -> None:
    """From its intent to its outcome; a question and its answer are counted too."""
    story = tell_story(
        journal(
            e.ToolStarted(1, 0, "act", "d", "k1"),
            e.LeaseTaken("b", "takeover"),
            ASKED,
            e.Decided("q6", "done", "d"),
            e.ToolFinished(1, 0, "ok", "acted"),
            e.LeaseTaken("c", "takeover"),
            e.Finished("Done."),
        ),
        run="r1",
    )
    [call] = story.calls

    assert ("finished", "Done.") == (story.status, story.output)
    assert ("act", ("k1",), "ok", "acted") == (call.tool, call.keys, call.outcome, call.content)
    assert (1, 1, ("done",)) == (call.in_flight, call.in_doubt, call.answers)
    assert call is story.call(Place(LANE, 1, 0))


def test_a_reported_outcome_settles_a_call_that_has_none() -> None:
    """Later reports are only on record."""
    story = tell_story(
        journal(
            e.ToolStarted(1, 0, "act", "d", "k1"),
            e.LeaseTaken("b", "takeover"),
            e.OutcomeReported(1, 0, 1, "ok", "acted"),
            e.OutcomeReported(1, 0, 1, "error", "late"),
        ),
        run="r1",
    )

    assert [("ok", "acted")] == [(call.outcome, call.content) for call in story.calls]


def test_a_run_without_an_end_says_where_it_stands() -> None:
    """Parked, failed, cancelled with their reasons; unparked is running again."""
    parked = e.Parked("max_iterations", "too many")
    told = [
        tell_story(journal(*bodies), run="r1")
        for bodies in (
            (),
            (parked,),
            (parked, e.Unparked()),
            (e.Failed("no"),),
            (e.Cancelled("", "why"),),
        )
    ]

    assert [
        ("running", ""),
        ("parked", "max_iterations: too many"),
        ("running", ""),
        ("failed", "no"),
        ("cancelled", "why"),
    ] == [(story.status, story.message) for story in told]


def test_what_does_not_hold_of_the_journal_is_told() -> None:
    """A story is read as far as it goes; the checker says what is wrong with it."""
    twice = e.ToolFinished(1, 0, "ok", "acted")
    story = tell_story(journal(e.ToolStarted(1, 0, "act", "d", "k1"), twice, twice), run="r1")

    assert story.violations
    assert story.violations[0].startswith("I")
