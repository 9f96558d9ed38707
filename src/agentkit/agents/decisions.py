"""Human decisions: checked against the open questions before anything is written or run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.answers import answer_problem
from agentkit.core.contracts.errors import (
    AlreadyDecided,
    InvalidDecision,
    NoteRefused,
    QuestionNotFound,
    ResultNotStorable,
    StaleDecision,
)
from agentkit.core.contracts.types import JSON, Decision, Question
from agentkit.core.contracts.values import (
    decode_value,
    encode_value,
    normalise,
    parse_arguments,
    to_text,
)
from agentkit.state.journal.fold import RunState

__all__ = [
    "NEED_VALUE",
    "Check",
    "by_question",
    "check_decision",
    "check_decision_texts",
    "check_decisions",
    "decision_word",
    "fits_definition",
    "refuse_if_cancelled",
]

NEED_VALUE = ("done", "failed", "edit", "answer")
"""Answers that carry something: what happened, or the arguments to run with."""

_QUESTION_ID = re.compile(r"q[0-9]+")

Check: TypeAlias = Callable[[Question, Decision], None]
"""Refuses, by raising `InvalidDecision`, what the tool of a question could not be run with."""


def check_decisions(
    state: RunState,
    decisions: Mapping[str, Decision | JSON],
    *,
    now_ms: int = 0,
    check: Check = lambda _question, _decision: None,
) -> list[e.Decided]:
    """The notes that these decisions mean; a repeated equal decision means none.

    Args:
        state: of the run.
        decisions: by the question's id, see `by_question`.
        now_ms: the time in ms since the epoch; a question takes no decision after its deadline.
        check: asked about each new decision.

    Raises:
        InvalidDecision: an answer is not among the allowed ones, or does not fit.
        QuestionNotFound: a question is not open.
        StaleDecision: its deadline has passed.
        AlreadyDecided: a question was decided in another way.
        NoteRefused: the run was cancelled, or has ended.
    """
    refuse_if_cancelled(state)
    notes = []
    for question_id, given in decisions.items():
        earlier = state.decided.get(question_id)
        question = next((q for q in state.questions if q.id == question_id), None)
        decision = _answer(given) if _is_input(question, earlier) else None
        decision = decision or _typed(state, question_id, given)
        if earlier is not None:
            _check_repeated(state, earlier, decision)
            continue
        if question is None:
            raise _not_open(state, question_id)
        _check_fitting(state, question, decision, now_ms=now_ms)
        check(question, decision)
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


def _not_open(state: RunState, question_id: str) -> Exception:
    run = f"run {state.run_id!r}"
    if state.end is None:
        return QuestionNotFound(f"{run} has no open question {question_id!r}; {_open(state)}")
    message = (
        f"{run} has ended ({state.status}); it takes no decision about {question_id!r} any more"
    )
    return NoteRefused(message, run_id=state.run_id)


def _is_input(question: Question | None, earlier: e.Decided | None) -> bool:
    """Whether a tool asks, or asked, so that anything is an answer."""
    return earlier.answer == "answer" if earlier else bool(question and question.kind == "input")


def _check_fitting(state: RunState, question: Question, decision: Decision, *, now_ms: int) -> None:
    _check_allowed(state, question, decision)
    check_decision(state, question.id, decision)
    _check_in_time(state, question, now_ms)
    _check_edit(state, question, decision)
    _check_answer(state, question, decision)


def by_question(
    state: RunState, decisions: Mapping[str, Decision | JSON]
) -> dict[str, Decision | JSON]:
    """The decisions by question id, each question once. A provider's id of a call names the first
    question of the run about such a call, whatever became of that: said again later, it is no word
    about another call.

    Raises:
        InvalidDecision: they are no mapping, or two of them are about one question.
    """
    checked: object = decisions
    if not isinstance(checked, Mapping):
        message = f"run {state.run_id!r}: decisions are given by question, {{'q7': 'skip'}}; not"
        raise InvalidDecision(f"{message} {decisions!r}")
    found: dict[str, Decision | JSON] = {}
    for name, decision in decisions.items():
        question_id = _question_id(state, name)
        if question_id in found:
            message = f"run {state.run_id!r}: question {question_id} is decided twice at once"
            raise InvalidDecision(message)
        found[question_id] = decision
    return found


def _question_id(state: RunState, name: str) -> str:
    """What `name` stands for: itself, where it is like the id of a question, which a provider may
    imitate, or where it could mean more than one.
    """
    carrying = state.labelled.get(name, []) if name and not _QUESTION_ID.fullmatch(name) else []
    alone = len(carrying) == 1 or (
        carrying and carrying[0] not in {question.id for question in state.questions}
    )
    return carrying[0] if alone else name


def _check_edit(state: RunState, question: Question, decision: Decision) -> None:
    """Refuse edited arguments that are no JSON object, as arguments are.

    Raises:
        InvalidDecision: they are none.
    """
    value = decision.value
    if decision.answer != "edit":
        return
    if not isinstance(value, dict) or parse_arguments(encode_value(value)) != value:
        message = (
            f"run {state.run_id!r}, question {question.id}: an edit gives all arguments as a JSON "
            "object, Decision('edit', value={…})"
        )
        raise InvalidDecision(message)


def refuse_if_cancelled(state: RunState) -> None:
    """Refuse to add to a run that is to end, or has ended, by a cancel.

    Raises:
        NoteRefused: with who cancelled it, and why.
    """
    cancelled = state.cancel or (state.end if isinstance(state.end, e.Cancelled) else None)
    if cancelled is None:
        return
    by = f" by {cancelled.actor}" if cancelled.actor else ""
    why = f" ({cancelled.reason})" if cancelled.reason else ""
    message = f"run {state.run_id!r} was cancelled{by}{why}; it takes nothing any more"
    raise NoteRefused(message, run_id=state.run_id)


def fits_definition(state: RunState) -> Check:
    """Refuses edited arguments that the tool, as it was recorded for the model, does not take: for
    one who decides without having the tool. Whoever makes the call looks at them again.
    """
    tools = state.started.tools if state.started is not None else ()
    schemas = {tool.name: tool.parameters for tool in tools}

    def check(question: Question, decision: Decision) -> None:
        if decision.answer != "edit":
            return
        schema = schemas.get(question.tool, {})
        problem = answer_problem(schema, decision.value, "the object of all arguments")
        if problem:
            message = f"run {state.run_id!r}, question {question.id}: {problem} ({question.tool})"
            raise InvalidDecision(message)

    return check


def _check_answer(state: RunState, question: Question, decision: Decision) -> None:
    """Refuse what the tool that asks has said is no answer."""
    if question.kind != "input":
        return
    about = f"run {state.run_id!r}, question {question.id}"
    try:
        value = normalise(decision.value)
    except ResultNotStorable as exc:
        raise InvalidDecision(f"{about}: the answer cannot be kept: {exc}") from exc
    schema = decode_value(question.schema) if question.schema else {}
    problem = answer_problem(schema, value) if isinstance(schema, dict) else ""
    if problem:
        raise InvalidDecision(f"{about}: {problem}")


def _answer(given: object) -> Decision:
    """What is given to a tool that asks is the answer itself, whatever it is."""
    if isinstance(given, Decision):
        return msgspec.structs.replace(given, answer=decision_word(given.answer))
    return Decision("answer", cast("JSON", given))


def decision_word(word: object) -> str:
    """The answer that a word stands for, in any case, with hyphens or underscores.

    Raises:
        InvalidDecision: it is no text.
    """
    if not isinstance(word, str):
        raise InvalidDecision(f"an answer is a word, not {word!r:.80}")
    return word.strip().lower().replace("-", "_")


def _typed(state: RunState, question_id: str, given: object) -> Decision:
    if isinstance(given, Decision):
        return _answer(given)
    if isinstance(given, str):
        answer = decision_word(given)
        if answer in NEED_VALUE:
            message = (
                f"run {state.run_id!r}, question {question_id}: {answer!r} says more than a word, "
                f"so it needs a value: Decision({answer!r}, value=…)"
            )
            raise InvalidDecision(message)
        return Decision(answer)
    message = (
        f"run {state.run_id!r}, question {question_id}: a decision is a Decision or a word, not "
        f"{type(given).__name__}"
    )
    raise InvalidDecision(message)


def _check_in_time(state: RunState, question: Question, now_ms: int) -> None:
    if question.deadline and now_ms >= question.deadline:
        message = f"run {state.run_id!r}, question {question.id}: its deadline has passed"
        raise StaleDecision(message)


def _check_allowed(state: RunState, question: Question, decision: Decision) -> None:
    if decision.answer not in question.answers:
        allowed = ", ".join(question.answers)
        message = (
            f"run {state.run_id!r}, question {question.id}: {decision.answer!r} is no answer to "
            f"it; choose one of {allowed}"
        )
        raise InvalidDecision(message)


def check_decision(state: RunState, about: str, decision: Decision) -> None:
    """Refuse a value that would be dropped, and what `check_decision_texts` refuses.

    Raises:
        InvalidDecision: it has one of these.
    """
    if decision.value is not None and decision.answer not in NEED_VALUE:
        message = f"run {state.run_id!r}, {about}: {decision.answer!r} takes no value"
        raise InvalidDecision(f"{message}; to run a call with other arguments, edit it")
    check_decision_texts(state, about, decision)


def check_decision_texts(state: RunState, about: str, decision: Decision) -> None:
    """Refuse an actor or a reason that is no text, or none that a store could keep.

    Raises:
        InvalidDecision: it is no text, or holds lone surrogates.
    """
    for what, text in (("actor", decision.actor), ("reason", decision.reason)):
        _check_text(f"run {state.run_id!r}, {about}: its {what}", text)


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidDecision(f"{what} is no text, but of type {type(text).__name__}")
    if text != to_text(text):
        raise InvalidDecision(f"{what} is no text: {text[:80]!r} holds lone surrogates")


def _check_repeated(state: RunState, earlier: e.Decided, decision: Decision) -> None:
    """A decision stands; the same one again changes nothing."""
    same = (earlier.answer, earlier.value) == (decision.answer, encode_value(decision.value))
    if not same:
        message = (
            f"run {state.run_id!r}: question {earlier.question} was already decided "
            f"({earlier.answer!r} by {earlier.actor or 'somebody'}); a decision stands"
        )
        raise AlreadyDecided(
            message, question=earlier.question, answer=earlier.answer, actor=earlier.actor
        )


def _open(state: RunState) -> str:
    ids = ", ".join(f"{q.id} ({q.tool}: {', '.join(q.answers)})" for q in state.questions)
    return f"open questions: {ids}" if ids else "it has no open question"
