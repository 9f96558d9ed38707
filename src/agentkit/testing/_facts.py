"""A journal read a second time, by other code than the product's: plain lists and dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from agentkit.core.contracts.heads import Row

OPEN = frozenset({"unknown", "not_started", "retrying", "interrupted"})
UNSURE = frozenset({"unknown", "interrupted"})
TERMINAL = frozenset({"finished", "failed", "cancelled"})


class Fact(NamedTuple):
    """One entry as it stands in the bytes."""

    seq: int
    id: str
    epoch: int
    lane: str
    at_ms: int
    kind: str
    body: dict[str, Any]

    @property
    def settles(self) -> bool:
        """Whether it is an outcome after which the call is over."""
        return self.kind in _OUTCOMES and self.body.get("outcome", "ok") not in OPEN


@dataclass(frozen=True)
class Place:
    """The identity of a call."""

    lane: str
    turn: int
    index: int


@dataclass
class Call:
    """All facts of one call, in order."""

    place: Place
    name: str
    arguments: str
    facts: list[Fact] = field(default_factory=list)

    def of(self, kind: str) -> list[Fact]:
        """Those of one kind."""
        return [fact for fact in self.facts if fact.kind == kind]

    @property
    def settled(self) -> list[Fact]:
        """Its final outcomes; a sound journal has one at most."""
        return [fact for fact in self.facts if fact.settles]

    @property
    def label(self) -> str:
        """How a violation names it."""
        return f"{self.name}, call {self.place.index} of turn {self.place.turn}"


@dataclass
class Story:
    """A journal, told by facts."""

    facts: list[Fact]
    calls: dict[Place, Call]
    questions: dict[str, Call]

    def of(self, kind: str) -> list[Fact]:
        """The facts of one kind."""
        return [fact for fact in self.facts if fact.kind == kind]

    @property
    def copied(self) -> int:
        """How many entries are copies of another run's, whose effects and costs they tell."""
        return max((fact.seq for fact in self.facts if fact.kind == "forked"), default=0)

    def is_cancelled(self, seq: int) -> bool:
        """Whether somebody had cancelled the run before this entry; where it is copied, the run
        that it was recorded for.
        """
        since = max((fact.seq for fact in self.of("forked") if fact.seq < seq), default=0)
        return any(since < fact.seq < seq for fact in self.of("cancel_asked"))

    @property
    def end(self) -> Fact | None:
        """The first terminal entry."""
        return next((fact for fact in self.facts if fact.kind in TERMINAL), None)


def chain(rows: Sequence[Row]) -> tuple[int | None, int | None]:
    """The first row that is missing, and the first whose checksum does not follow."""
    before = b""
    for number, row in enumerate(rows, 1):
        if row.seq != number:
            return number, None
        before = blake2b(before + row.body, digest_size=8).digest()
        if row.check != before:
            return None, number
    return None, None


def tell(rows: Sequence[Row]) -> Story:
    """Read the rows; a decision belongs to the call whose question it answers."""
    story = Story([], {}, {})
    for row in rows:
        seq, identity, epoch, lane, at_ms, body = msgspec.json.decode(row.body)
        fact = Fact(seq, identity, epoch, lane, at_ms, body["type"], body)
        story.facts.append(fact)
        if fact.kind == "model_answered":
            for index, (_, name, *given) in enumerate(body.get("calls", ())):
                place = Place(lane, body["turn"], index)
                story.calls[place] = Call(place, name, *given)
            continue
        call = story.calls.get(Place(lane, body.get("turn", 0), body.get("index", 0)))
        if fact.kind == "decided":
            call = story.questions.get(body["question"])
        if call is not None and (fact.kind in _OF_CALLS or _is_news(fact, call)):
            call.facts.append(fact)
            if fact.kind == "question_asked":
                story.questions[f"q{seq}"] = call
    return story


def _is_news(fact: Fact, call: Call) -> bool:
    """Whether it reports the end of the newest attempt while nobody knew it; that somebody has
    ordered the next one says nothing of it.
    """
    begun = call.of("tool_started")
    if fact.kind != "outcome_reported" or not begun or call.settled:
        return False
    since = [one for one in call.facts if one.seq > begun[-1].seq and one.kind in _OUTCOMES]
    ends = [one.body.get("outcome", "ok") for one in since if one.kind == "tool_finished"]
    known = any(outcome not in UNSURE for outcome in ends)
    return fact.body["attempt"] == begun[-1].body.get("attempt", 1) and not known


_OUTCOMES = frozenset({"tool_finished", "outcome_reported"})
_OF_CALLS = frozenset(
    {
        "tool_started",
        "tool_finished",
        "question_asked",
        "decided",
        "value_recorded",
        "wait_started",
        "wait_ended",
    }
)
