"""Decisions by who has the store and not the agent, checked as far as the journal allows."""

import msgspec
import pytest

from agentkit.agents import cancel, pause, record_decisions
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    AlreadyDecided,
    InvalidDecision,
    NoteRefused,
    QuestionNotFound,
    StaleDecision,
)
from agentkit.core.contracts.types import Decision, Question
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.detail import Detail
from agentkit.state.journal.journal import load
from agentkit.testing import read_rows
from agentkit.testing.invariants import Evidence, check
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, bodies_of, call, calls, context, entries_of, then

paid: list[int] = []


@tool(side_effecting=True, requires_approval=True, approval_seconds=60)
async def pay(cents: int, to: str = "ann") -> str:
    """Pay."""
    paid.append(cents)
    return f"paid {cents} to {to}"


async def _suspended() -> tuple[InMemoryCheckpointStore, Question]:
    """A run that waits for an approval, and its question."""
    paid.clear()
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    llm = then([calls(call("pay", cents=5))])
    result = await agent_of(pay).run(TASK, context(llm, store, clock=clock))
    assert result.suspended is not None
    [question] = result.suspended.questions
    return store, question


async def _decide(
    store: InMemoryCheckpointStore,
    question: str,
    decision: Decision | str,
    *,
    seconds: float = 0.0,
    digest: str = "",
) -> tuple[str, ...]:
    """Record it `seconds` after the question was asked."""
    clock = FakeClock()
    clock.advance(seconds)
    done = await record_decisions(store, RUN, {question: decision}, digest=digest, clock=clock)
    return done.repeated


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"to": "ann"}, "lacks cents"),
        ({"cents": "five"}, "cents must be integer"),
        ({"cents": 5, "iban": 1}, "unknown members: iban"),
        ([5], "as a JSON object"),
    ],
)
async def test_an_edit_is_compared_with_the_recorded_tool(value: object, match: str) -> None:
    """What the tool cannot take is refused before anything is written; what it can is recorded."""
    store, question = await _suspended()

    with pytest.raises(InvalidDecision, match=match):
        await _decide(store, question.id, Decision("edit", value=value))  # type: ignore[arg-type]  # drawn
    assert [] == await bodies_of(store, e.Decided)
    await _decide(store, question.id, Decision("edit", value={"cents": 4, "to": "bob"}))

    [decided] = await bodies_of(store, e.Decided)
    assert '{"cents":4,"to":"bob"}' == decided.value


async def test_a_decision_is_for_what_was_shown() -> None:
    """With a digest, or its beginning, another question under the same id is not decided: the run
    may have been deleted and begun anew.
    """
    store, question = await _suspended()

    with pytest.raises(StaleDecision, match="about other arguments by now"):
        await _decide(store, question.id, "approve", digest="0" * 16)
    assert [] == await bodies_of(store, e.Decided)
    assert () == await _decide(store, question.id, "approve", digest=question.digest[:8])
    assert (question.id,) == await _decide(store, question.id, "approve", digest=question.digest)
    with pytest.raises(StaleDecision):
        await _decide(store, question.id, "approve", digest="0" * 16)


async def test_each_reason_for_a_refusal_is_an_error_of_its_own() -> None:
    """Unknown, late, decided otherwise (and by whom), and a run that has ended."""
    store, question = await _suspended()

    with pytest.raises(QuestionNotFound, match=rf"open questions: {question.id} \(pay: approve,"):
        await _decide(store, "q99", "approve")
    with pytest.raises(StaleDecision, match="its deadline has passed"):
        await _decide(store, question.id, "approve", seconds=61)
    await _decide(store, question.id, Decision("reject", actor="ann"))
    with pytest.raises(AlreadyDecided) as told:
        await _decide(store, question.id, "approve")
    await agent_of(pay).resume(RUN, {}, context(then([calls(call("pay", cents=5))]), store))
    assert (question.id,) == await _decide(store, question.id, "reject")
    with pytest.raises(NoteRefused, match=r"has ended \(done\); it takes no decision about 'q99'"):
        await _decide(store, "q99", "approve")

    assert (question.id, "reject", "ann") == (
        told.value.question,
        told.value.answer,
        told.value.actor,
    )


async def test_a_rejection_that_was_not_applied_yet_is_what_a_cancel_records() -> None:
    """A person said no, with a reason, and then somebody cancelled the run: the call's last word is
    the person's. An approval that was not applied yet ends as not made.
    """
    store, question = await _suspended()
    await _decide(store, question.id, Decision("reject", actor="ann", reason="too dear"))
    other, asked = await _suspended()
    await _decide(other, asked.id, "approve")

    await cancel(store, RUN)
    await cancel(other, RUN)

    [said] = await bodies_of(store, e.ToolFinished)
    [unmade] = await bodies_of(other, e.ToolFinished)
    assert ("rejected", "ann") == (said.outcome, said.by)
    assert said.content.endswith("so it was not made. too dear")
    assert "cancelled" == unmade.outcome
    assert [] == paid
    for one in (store, other):
        assert [] == check(Evidence(run=RUN, rows=await read_rows(one, RUN)))


async def test_a_paused_run_shows_its_questions_in_its_summary() -> None:
    """So that lists show them without reading its journal."""
    store, question = await _suspended()

    await pause(store, RUN)

    head = await store.head(RUN)
    assert head is not None
    assert head.summary is not None
    detail = msgspec.json.decode(head.summary.detail, type=Detail)
    assert ("paused", (question,)) == (detail.parked, detail.questions)
    assert (await load(store, RUN)).questions == detail.questions
    assert 1 == sum(isinstance(one.body, e.PauseAsked) for one in await entries_of(store))


@pytest.mark.parametrize("digest", ["e", "0123456", None, 7])
async def test_a_few_characters_of_a_digest_bind_nothing(digest: object) -> None:
    """They are refused, and so is what is none: they would let through what was not shown."""
    store, question = await _suspended()
    shown = question.digest[: len(digest)] if isinstance(digest, str) else digest

    with pytest.raises(InvalidDecision, match="first 8 characters"):
        await _decide(store, question.id, "approve", digest=shown)  # type: ignore[arg-type]  # wrong on purpose

    assert [] == await bodies_of(store, e.Decided)


async def test_who_and_why_are_texts() -> None:
    """In a cancel too."""
    store, _ = await _suspended()

    with pytest.raises(InvalidDecision, match="its actor is no text, but of type int"):
        await cancel(store, RUN, actor=5)  # type: ignore[arg-type]  # wrong on purpose

    assert [] == await bodies_of(store, e.CancelAsked)
