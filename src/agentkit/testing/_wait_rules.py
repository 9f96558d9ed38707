"""The invariants of waiting: what woke a call, and which event went where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from agentkit.testing._facts import Call, Fact, Place, Story

Name: TypeAlias = tuple[Place, str]


@dataclass
class _Wait:
    """One wait of a call, as the entries tell it."""

    fact: Fact
    attempt: int
    over: bool = False


@dataclass
class _Story:
    """The waits of a run so far, the attempts of its calls, and the events that nobody took."""

    waits: dict[Name, _Wait] = field(default_factory=dict)
    attempts: dict[Place, int] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    events: set[str] = field(default_factory=set)

    def newest(self, place: Place) -> list[_Wait]:
        """What the newest attempt of a call is left for."""
        attempt = self.attempts.get(place, 0)
        return [w for (of, _), w in self.waits.items() if of == place and w.attempt == attempt]


def waking(story: Story) -> Iterator[tuple[str, str]]:
    """I4, I11: a call that waits is entered again when something it waits for has come, not
    before; a time is over when it has come; an event is recorded once, and given to one wait.
    """
    seen = _Story()
    for fact in story.facts:
        call = story.calls.get(_place(fact))
        if fact.kind == "event_received":
            yield from _received(seen, fact)
        elif fact.kind == "decided" and fact.body["question"] in story.questions:
            yield from _answered(seen, story.questions[fact.body["question"]], fact)
        elif call is not None:
            yield from _moved(seen, call, fact)


def _moved(seen: _Story, call: Call, fact: Fact) -> Iterator[tuple[str, str]]:
    place, body = call.place, fact.body
    if fact.kind == "tool_started":
        if body.get("by") == "wait" and not any(w.over for w in seen.newest(place)):
            yield "I11", f"{call.label}: entered again at {fact.seq}, and nothing had come"
        seen.attempts[place] = body.get("attempt", 1)
    elif fact.kind in {"tool_finished", "outcome_reported"} and fact.settles:
        seen.waits = {name: w for name, w in seen.waits.items() if name[0] != place}
    elif fact.kind == "wait_ended":
        wait = seen.waits.get((place, body["name"]))
        if wait is None or wait.over:
            yield "I11", f"{call.label}: {body['name']} ended at {fact.seq}, and was not open"
        else:
            wait.over = True
            if fact.at_ms < _until(wait.fact):
                yield "I11", f"{call.label}: {body['name']} ended at {fact.seq}, before its time"
    elif fact.kind == "wait_started" or body.get("kind") == "input":
        _began(seen, place, fact)


def _began(seen: _Story, place: Place, fact: Fact) -> None:
    body, attempt = fact.body, seen.attempts.get(place, 0)
    known = seen.waits.get((place, body["name"]))
    if known is not None:
        known.attempt = attempt
        return
    wait = seen.waits[place, body["name"]] = _Wait(fact, attempt)
    event = body.get("event", "")
    if event in seen.kept:  # it is there at once, so the attempt is not left
        seen.kept.remove(event)
        wait.attempt, wait.over = 0, True


def _received(seen: _Story, fact: Fact) -> Iterator[tuple[str, str]]:
    name, identity = fact.body["name"], fact.body["event_id"]
    if identity in seen.events:
        yield "I4", f"the event {identity} was recorded again at {fact.seq}"
        return
    seen.events.add(identity)
    for wait in seen.waits.values():  # in the order in which they began
        if not wait.over and wait.fact.body.get("event") == name:
            wait.over = True
            return
    seen.kept.append(name)


def _answered(seen: _Story, call: Call, fact: Fact) -> Iterator[tuple[str, str]]:
    """The answer of a question that a tool has asked: one, in time, and about what was shown."""
    for (place, name), wait in seen.waits.items():
        if place != call.place or f"q{wait.fact.seq}" != fact.body["question"]:
            continue
        if wait.over:
            yield "I11", f"{call.label}: {name} was answered at {fact.seq}, and was over"
        if fact.body["digest"] != wait.fact.body["digest"]:
            yield "I11", f"{call.label}: answer {fact.seq} is bound to another digest"
        wait.over = True


def _until(fact: Fact) -> int:
    return int(fact.body.get("until") or fact.body.get("deadline", 0))


def _place(fact: Fact) -> Place:
    return Place(fact.lane, fact.body.get("turn", 0), fact.body.get("index", 0))
