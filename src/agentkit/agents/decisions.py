"""Human decisions: checked against the open questions before anything is written or run."""

from __future__ import annotations

from collections.abc import Mapping

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision
from agentkit.core.contracts.types import Decision, Question
from agentkit.core.contracts.values import encode_value, to_text
from agentkit.state.journal.fold import RunState

__all__ = ["NEED_VALUE", "check_decision_texts", "check_decisions"]

NEED_VALUE = ("done", "failed")
"""Answers that carry what happened."""


def check_decisions(state: RunState, decisions: Mapping[str, Decision | str]) -> list[e.Decided]:
    """The notes that these decisions mean; a repeated equal decision means none.

    Raises:
        InvalidDecision: a question is not open, or an answer is not among its allowed ones.
    """
    checked: object = decisions
    if not isinstance(checked, Mapping):
        message = f"run {state.run_id!r}: decisions are given by question, {{'q7': 'skip'}}; not"
        raise InvalidDecision(f"{message} {decisions!r}")
    notes = []
    for question_id, given in decisions.items():
        decision = _typed(state, question_id, given)
        earlier = state.decided.get(question_id)
        if earlier is not None:
            _check_repeated(state, earlier, decision)
            continue
        question = next((q for q in state.questions if q.id == question_id), None)
        if question is None:
            message = f"run {state.run_id!r} has no open question {question_id!r}; {_open(state)}"
            raise InvalidDecision(message)
        _check_allowed(state, question, decision)
        check_decision_texts(state, question.id, decision)
        notes.append(
            e.Decided(
                question=question.id,
                answer=decision.answer,
                digest=question.digest,
                value=encode_value(decision.value),
                actor=decision.actor,
                reason=decision.reason,
            )
        )
    return notes


def _typed(state: RunState, question_id: str, given: object) -> Decision:
    if isinstance(given, Decision):
        return given
    if isinstance(given, str):
        answer = given.strip().lower().replace("-", "_")
        if answer in NEED_VALUE:
            message = (
                f"run {state.run_id!r}, question {question_id}: {answer!r} says what happened, so "
                f"it needs a value: Decision({answer!r}, value=…)"
            )
            raise InvalidDecision(message)
        return Decision(answer)
    message = (
        f"run {state.run_id!r}, question {question_id}: a decision is a Decision or a word, not "
        f"{type(given).__name__}"
    )
    raise InvalidDecision(message)


def _check_allowed(state: RunState, question: Question, decision: Decision) -> None:
    if decision.answer not in question.answers:
        allowed = ", ".join(question.answers)
        message = (
            f"run {state.run_id!r}, question {question.id}: {decision.answer!r} is no answer to "
            f"it; choose one of {allowed}"
        )
        raise InvalidDecision(message)


def check_decision_texts(state: RunState, about: str, decision: Decision) -> None:
    """Refuse an actor or a reason that no store could keep as a text.

    Raises:
        InvalidDecision: it holds lone surrogates.
    """
    for what, text in (("actor", decision.actor), ("reason", decision.reason)):
        if text != to_text(text):
            message = f"run {state.run_id!r}, {about}: its {what} is no text"
            raise InvalidDecision(f"{message}: {text[:80]!r} holds lone surrogates")


def _check_repeated(state: RunState, earlier: e.Decided, decision: Decision) -> None:
    same = (earlier.answer, earlier.value) == (decision.answer, encode_value(decision.value))
    if not same:
        message = (
            f"run {state.run_id!r}: question {earlier.question} was already decided "
            f"({earlier.answer!r} by {earlier.actor or 'somebody'}); a decision stands"
        )
        raise InvalidDecision(message)


def _open(state: RunState) -> str:
    ids = ", ".join(f"{q.id} ({q.tool}: {', '.join(q.answers)})" for q in state.questions)
    return f"open questions: {ids}" if ids else "it has no open question"
