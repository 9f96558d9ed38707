"""The invariants of what was said: with what calls are made, what people told of those in doubt,
and what a user has added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from agentkit.core.contracts.types import JSONObject, Message
from agentkit.core.contracts.values import digest
from agentkit.testing._facts import Call, Fact, Story
from agentkit.testing._shapes import shape

_WORDS = {"done": "ok", "failed": "error", "skip": "skipped"}
"""The outcome that a person's word about a call in doubt becomes; `run_again` is none."""


def intended(story: Story) -> Iterator[tuple[str, str]]:
    """I2, I4, I8: each call is made as it was asked for, under a key that no other call has, and
    keeps one value under each name.
    """
    owners: dict[str, Call] = {}
    for call in story.calls.values():
        allowed = {digest(call.name, arguments) for arguments in _wordings(call)}
        for fact in call.of("tool_started"):
            if fact.body["name"] != call.name or fact.body["digest"] not in allowed:
                yield "I8", f"{call.label}: intent {fact.seq} is not for what was asked for"
            key = fact.body.get("key", "")
            if key and owners.setdefault(key, call) is not call:
                yield "I2", f"{call.label}: its key is also that of {owners[key].label}"
        names = [fact.body["name"] for fact in call.of("value_recorded")]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield "I4", f"{call.label}: the value {name!r} was recorded {names.count(name)} times"


def _wordings(call: Call) -> Iterator[object]:
    """The arguments that the model asked with, and those that people changed them to."""
    for text in (call.arguments, *(fact.body["value"] for fact in _edits(call))):
        try:
            yield json.loads(text or "{}")
        except ValueError:
            continue


def _edits(call: Call) -> list[Fact]:
    return [fact for fact in call.of("decided") if fact.body["answer"] == "edit"]


def heard(story: Story, answers: Sequence[JSONObject]) -> Iterator[tuple[str, str]]:
    """I3: what a user has added was in the request whose answer has ended the run."""
    given = story.of("model_answered")
    if story.end is None or story.end.kind != "finished" or not given:
        return
    asked = [one for one in answers if one["turn"] == given[-1].body["turn"]]
    requests = [one["messages"] for one in asked if isinstance(one.get("messages"), list)]
    for fact in story.of("message_added"):
        message = shape(Message("user", fact.body["text"]))
        read = any(isinstance(one, list) and message in one for one in requests)
        if fact.seq > story.copied and requests and not read:
            yield "I3", f"the run has ended, and its model has not read the message at {fact.seq}"


def heeded(story: Story) -> Iterator[tuple[str, str]]:
    """I13: a call in doubt becomes what a person said of it."""
    for call in story.calls.values():
        question: Fact | None = None
        decision: Fact | None = None
        for fact in call.facts:
            if fact.kind == "question_asked":
                question, decision = fact, None
            elif fact.kind == "decided":
                decision = fact
            elif fact.kind == "outcome_reported":
                question = decision = None
            elif fact.kind in {"tool_started", "tool_finished"}:
                doubted = question is not None and question.body["kind"] == "in_doubt"
                if doubted and decision is not None:
                    yield from _heeded(story, call, decision, fact)
                question = decision = None


def _heeded(story: Story, call: Call, decision: Fact, fact: Fact) -> Iterator[tuple[str, str]]:
    answer = decision.body["answer"]
    if answer not in _WORDS:
        if fact.kind != "tool_started" and not story.is_cancelled(fact.seq):
            yield "I13", f"{call.label}: it was to be made again, and ended at {fact.seq} instead"
        return
    became = fact.body.get("outcome", "ok") if fact.kind == "tool_finished" else "made again"
    if became != _WORDS[answer]:
        yield "I13", f"{call.label}: a person said {answer}, and it became {became} at {fact.seq}"
        return
    value = json.loads(decision.body.get("value", "null"))
    told = fact.body.get("content", "")
    if answer != "skip" and isinstance(value, str) and value != told:
        yield "I13", f"{call.label}: a person told {value!r}, the model is told {told!r}"
