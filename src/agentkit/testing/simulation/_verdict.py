"""What is asked of a schedule that is over, beside what the checker asks of every run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from agentkit.state.journal.recovery import RECONCILE
from agentkit.testing._facts import Call, Fact, Story
from agentkit.testing.simulation._outside import Outside, Word
from agentkit.testing.simulation._policies import GUARDED, POLICIES
from agentkit.testing.simulation._waiting_tools import told_of

__all__ = ["doubles", "kept_words", "seen_in", "was_given"]

_EVENT = re.compile(r"parcel-\d+")
_BY_ANSWER = {"approve": "approved", "reject": "rejected", "edit": "edited", "answer": "answered"}
_BY_KIND = {
    "question_asked": "questions",
    "event_received": "events",
    "message_added": "messages",
    "pause_asked": "paused",
    "cancelled": "cancelled",
}


def doubles(story: Story, outside: Outside) -> tuple[dict[str, int], int]:
    """Effects beyond the first of each call: those of the runtime by policy, and those that a
    person ordered.
    """
    had = Counter(one.key for one in outside.effects if one.kind == "effect")
    doubled: Counter[str] = Counter()
    ordered = 0
    for call in story.calls.values():
        keys = {fact.body.get("key", "") for fact in call.of("tool_started")} - {""}
        beyond = sum(had[key] for key in keys) - 1
        if beyond < 1:
            continue
        again = sum(fact.body["answer"] == "run_again" for fact in call.of("decided"))
        again += sum(fact.body["outcome"] == "retrying" for fact in call.of("outcome_reported"))
        allowed = 0 if POLICIES[call.name] in GUARDED else again
        ordered += min(beyond, allowed)
        doubled[POLICIES[call.name]] += max(beyond - allowed, 0)
    return {
        policy: doubled[policy] for policy in sorted(set(POLICIES.values()) - {"read"})
    }, ordered


def kept_words(story: Story, outside: Outside) -> Iterator[tuple[str, str]]:
    """I3, I11: whoever was told that something is recorded finds it, once; whoever was told that
    somebody was faster was told who; and what was refused is not there.
    """
    had = Counter((fact.kind, fact.body.get(_ID.get(fact.kind, ""), "")) for fact in story.facts)
    for kind, identity in outside.notes:
        if had[kind, identity] != 1:
            yield (
                "I3",
                f"{kind} {identity} was acknowledged and is there {had[kind, identity]} times",
            )
    decided = story.of("decided")
    for word in outside.words:
        if not _fits(word, [one for one in decided if one.body["question"] == word.question]):
            yield "I11", f"{word} does not fit what is recorded"


_ID = {"event_received": "event_id", "message_added": "message_id"}


def _fits(word: Word, decided: list[Fact]) -> bool:
    mine = [one for one in decided if one.body.get("actor", "") == word.actor]
    same = [one for one in decided if _says(one) == (word.answer, word.value)]
    if word.told == "recorded":
        return len(mine) == 1 and same == decided
    if word.told == "repeated":
        return not mine and bool(same)
    if word.told == "too late":
        return not mine and any(f"by {one.body.get('actor')}" in word.text for one in decided)
    return not mine


def _says(fact: Fact) -> tuple[str, object]:
    return fact.body["answer"], json.loads(fact.body.get("value", "null"))


def was_given(story: Story) -> Iterator[tuple[str, str]]:
    """I11: a tool that asked got what a person had answered, and no two got the same event."""
    events: Counter[str] = Counter()
    for call in story.calls.values():
        content = _result(call)
        if content is None:
            continue
        events.update(_EVENT.findall(content))
        answer = _answer(story, call)
        item = json.loads(call.arguments)["item"]
        if answer is not None and not content.startswith(
            (f"heard of {item}: {answer}", f"fulfilled {item}: {answer}, ")
        ):
            yield "I11", f"{call.label}: {answer} was answered, and it made {content!r} of it"
    for event, times in events.items():
        if times > 1:
            yield "I4", f"the event {event} was given to {times} calls"


def _result(call: Call) -> str | None:
    """What the call returned, where it did by itself."""
    settled = call.settled
    if not settled or settled[0].body.get("outcome", "ok") != "ok":
        return None
    return str(settled[0].body.get("content", ""))


def _answer(story: Story, call: Call) -> str | None:
    asked = {f"q{fact.seq}" for fact in call.of("question_asked") if fact.body["kind"] == "input"}
    for fact in story.of("decided"):
        if fact.body["question"] in asked:
            return told_of(json.loads(fact.body.get("value", "null")))
    return None


def seen_in(story: Story, outside: Outside) -> dict[str, int]:
    """What is worth counting, by kind; see `SIGHTS`."""
    seen: Counter[str] = Counter()
    for fact in story.facts:
        by = fact.body.get("by", "")
        seen.update(_names(fact, by))
        if fact.kind in {"tool_started", "tool_finished"} and by == RECONCILE:
            seen["happened" if fact.kind == "tool_finished" else "cannot happen"] += 1
    seen.update(f"told {word.told}" for word in outside.words)
    return {name: times for name, times in seen.items() if times}


def _names(fact: Fact, by: str) -> Iterator[str]:
    body = fact.body
    if fact.kind in _BY_KIND:
        yield _BY_KIND[fact.kind]
    elif fact.kind == "decided" and body["answer"] in _BY_ANSWER:
        yield _BY_ANSWER[body["answer"]]
    elif fact.kind == "outcome_reported":
        yield "settled by an operator" if by else "late outcomes"
    elif fact.kind == "wait_ended":
        yield "times that came" if body["how"] == "time" else "deadlines"
    elif fact.kind == "tool_finished" and body.get("outcome") == "in_doubt":
        yield "told to the model"
    elif fact.kind == "tool_finished" and body.get("outcome") == "rejected":
        yield "refused"
    elif fact.kind == "parked" and body["reason"] == "recoveries":
        yield "parked for recoveries"
    elif fact.kind == "unparked" and body.get("actor"):
        yield "unparked by an operator"
