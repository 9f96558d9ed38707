"""The invariants of single calls: how often they ran, how they were settled, who decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agentkit.core.contracts.values import digest, parse_arguments
from agentkit.testing._facts import UNSURE, Call, Fact, Story
from agentkit.testing.effects import Effect


def once(
    story: Story, effects: Sequence[Effect], tools: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """I1, I2, I6, I8: runs and effects against the intents and leases that allowed them."""
    intents = Counter(_dispatch(fact) for fact in story.of("tool_started"))
    runs = Counter(
        (one.key, one.digest, one.attempt, one.epoch) for one in effects if one.kind == "run"
    )
    for dispatch, times in runs.items():
        if times > intents[dispatch]:
            name = "I1" if intents[dispatch] else "I8"
            yield name, f"{intents[dispatch]} intents, but {times} runs, of {dispatch}"
    for one in effects:
        if one.kind == "run" and one.holder > one.epoch:
            yield "I6", f"{one.tool} was begun in epoch {one.epoch} when {one.holder} had the run"
        if one.kind == "effect" and not intents[one.key, one.digest, one.attempt, one.epoch]:
            yield "I8", f"an effect of {one.tool} has no intent (key {one.key}, {one.digest})"
    had = Counter(one.key for one in effects if one.kind == "effect" and one.key)
    for call in story.calls.values():
        if not call.settled or call.settled[0].seq > story.copied:
            yield from _effects_of(call, had, tools)


def _effects_of(
    call: Call, had: Mapping[str, int], tools: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    kind = tools.get(call.name)
    keys = {fact.body.get("key", "") for fact in call.of("tool_started")} - {""}
    if kind in {None, "read"} or not keys:
        return
    if len(keys) > 1:
        yield "I2", f"{call.label}: its attempts had different keys"
    times = sum(had.get(key, 0) for key in keys)
    asked_for = sum(fact.body["answer"] == "run_again" for fact in call.of("decided"))
    asked_for += sum(fact.body["outcome"] == "retrying" for fact in call.of("outcome_reported"))
    if times > 1 + (asked_for if kind != "idempotent" else 0):
        yield "I2", f"{call.label}: {times} effects, with {asked_for} asked for by a human"
    done = bool(call.settled) and call.settled[0].body.get("outcome", "ok") == "ok"
    if done and not times:
        yield "I8", f"{call.label}: it is recorded as done and had no effect"
    if times and call.settled and call.settled[0].body.get("outcome") == "cancelled":
        yield "I13", f"{call.label}: it is recorded as cancelled and had an effect"
    if kind == "transactional" and times and not done:
        yield "I2", f"{call.label}: it had an effect without its outcome"


def settled(story: Story, tools: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """I1, I4, I13: one end for each call, and the right way out of each doubt."""
    for call in story.calls.values():
        ends = call.settled
        if len(ends) > 1:
            yield "I13", f"{call.label}: it was settled {len(ends)} times"
        if not ends and story.end is not None and story.end.kind in {"finished", "cancelled"}:
            yield "I13", f"{call.label}: the run has {story.end.kind} without its outcome"
        if ends:
            for fact in call.of("tool_started"):
                if fact.seq > ends[0].seq:
                    yield "I1", f"{call.label}: it was started again after its outcome"
        yield from _doubts(story, call, tools.get(call.name))


def _doubts(story: Story, call: Call, kind: str | None) -> Iterator[tuple[str, str]]:
    """Each intent that was left open is followed by what its tool allows, and by nothing else."""
    intent: Fact | None = None
    decided = unsure = False
    for fact in call.facts:
        if fact.kind == "decided":
            decided = True
        elif fact.kind == "tool_started":
            looked = kind == "reconciled" and fact.body.get("by") == "reconcile"
            looked = looked or fact.body.get("by") == "wait"  # it was left, and entered again
            if intent is not None and not decided and not looked:
                if kind in {"plain", "reconciled"}:
                    yield "I13", f"{call.label}: started again at {fact.seq} without a human"
                elif fact.epoch == intent.epoch and not unsure:
                    yield "I4", f"{call.label}: two open intents in epoch {fact.epoch}"
            intent, decided, unsure = fact, False, False
        elif fact.kind == "tool_finished":
            own = intent is not None and fact.epoch == intent.epoch
            looked = kind in {None, "reconciled"} and fact.body.get("by") == "reconcile"
            known = own or decided or looked
            guessed = intent is not None or fact.body.get("outcome", "ok") == "ok"
            if guessed and not known and not _may_say(kind, fact):
                yield "I13", f"{call.label}: outcome {fact.seq} was recorded by another worker"
            unsure = fact.body.get("outcome", "ok") in UNSURE
            if not unsure:
                intent = None
            decided = False
        elif fact.kind == "outcome_reported":
            decided = fact.body.get("outcome", "ok") == "retrying"
            if fact.settles:
                intent = None
    terminal = story.end is not None and story.end.kind == "finished"
    if terminal and intent is not None:
        yield "I13", f"{call.label}: its intent at {intent.seq} was left in doubt"


def _may_say(kind: str | None, fact: Fact) -> bool:
    """Whether a worker may record this of an attempt that another one has made: of an effect, only
    that nobody knows. That a tool has none, or that it went with its transaction, is known.
    """
    outcome = fact.body.get("outcome", "ok")
    if kind in {"plain", "reconciled", "idempotent"}:
        return bool(outcome == "in_doubt")
    return bool(outcome != "ok")


def decisions(story: Story) -> Iterator[tuple[str, str]]:
    """I11: questions stay open until they are decided; a decision moves its own question, once."""
    for call in story.calls.values():
        question: Fact | None = None
        decision: Fact | None = None
        for fact in call.facts:
            if _is_of_input(story, fact):
                continue
            if fact.kind == "question_asked":
                if question is not None and decision is None:
                    yield "I11", f"{call.label}: asked again at {fact.seq}, undecided"
                question, decision = fact, None
            elif fact.kind == "decided":
                if decision is not None:
                    yield "I11", f"{call.label}: decided again at {fact.seq}"
                decision = fact
                if question is not None and fact.body["digest"] != question.body["digest"]:
                    yield "I11", f"{call.label}: decision {fact.seq} is bound to another digest"
            elif fact.kind == "outcome_reported":
                question = decision = None
            elif fact.kind in {"tool_started", "tool_finished"} and question is not None:
                stopped = story.is_cancelled(fact.seq)
                if decision is None and not (stopped or _passed(question, fact)):
                    yield "I11", f"{call.label}: moved at {fact.seq} before a decision"
                elif decision is not None and question.body["kind"] == "approval":
                    yield from _approved(call, question, decision, fact)
                question = decision = None
    yield from _asked_while_open(story)
    yield from _refusals(story)


def _is_of_input(story: Story, fact: Fact) -> bool:
    """Whether it is about a question that a tool asked while it ran; see the rules of waiting."""
    if fact.kind == "question_asked":
        return bool(fact.body["kind"] == "input")
    return fact.kind == "decided" and fact.body["question"] in _inputs(story)


def _inputs(story: Story) -> set[str]:
    asked = [fact for fact in story.of("question_asked") if fact.body["kind"] == "input"]
    return {f"q{fact.seq}" for fact in asked}


def _passed(question: Fact, fact: Fact) -> bool:
    """Whether the call moved by the deadline that its question had, as that said."""
    deadline = question.body.get("deadline", 0)
    wanted = "tool_started" if question.body.get("on_deadline") == "approve" else "tool_finished"
    refused = fact.kind == "tool_finished" and fact.body.get("outcome") == "rejected"
    return 0 < deadline <= fact.at_ms and (refused or fact.kind == wanted == "tool_started")


def _approved(call: Call, question: Fact, decision: Fact, fact: Fact) -> Iterator[tuple[str, str]]:
    """I11: a call that needed approval is made as it was approved, or not at all."""
    answer, rejected = decision.body["answer"], fact.body.get("outcome") == "rejected"
    if answer == "reject" and not rejected:
        yield "I11", f"{call.label}: it was rejected, and moved at {fact.seq} all the same"
    elif answer != "reject" and fact.kind == "tool_started":
        shown = {question.body["digest"], *_without_defaults(call, question)}
        if answer == "edit":
            shown = {digest(call.name, decision.body["value"])}
        if fact.body["digest"] not in shown:
            yield "I11", f"{call.label}: intent {fact.seq} is not for what was approved"


def _without_defaults(call: Call, question: Fact) -> Iterator[str]:
    """The digest of what the model asked for, where all of that was shown: an intent is for that,
    the person saw the tool's defaults beside it.
    """
    own, seen = parse_arguments(call.arguments), parse_arguments(question.body["arguments"])
    if own is not None and seen is not None and {**seen, **own} == seen:
        yield digest(call.name, call.arguments)


def _refusals(story: Story) -> Iterator[tuple[str, str]]:
    """I11: what a person rejected is not made later, unless a person has allowed just that."""
    refused: set[str] = set()
    allowed: set[str] = set()
    for fact in story.facts:
        if fact.kind == "decided":
            call = story.questions.get(fact.body["question"])
            if call is None or not _answers_approval(call, fact):
                continue
            if fact.body["answer"] == "reject":
                refused.add(fact.body["digest"])
                allowed.discard(fact.body["digest"])
            else:
                allowed.add(fact.body["digest"])
                allowed.add(digest(call.name, fact.body.get("value", "null")))
        elif fact.kind == "tool_started" and fact.body["digest"] in refused - allowed:
            yield "I11", f"intent {fact.seq} is for a call that a person has rejected"


def _answers_approval(call: Call, decision: Fact) -> bool:
    asked = [fact for fact in call.of("question_asked") if fact.seq < decision.seq]
    return bool(asked) and asked[-1].body["kind"] == "approval"


def _asked_while_open(story: Story) -> Iterator[tuple[str, str]]:
    undecided: set[str] = set()
    asleep: set[object] = set()
    told = {
        fact.seq: {name for name, other in story.questions.items() if other is call}
        for call in story.calls.values()
        for fact in call.of("outcome_reported")
    }
    for fact in story.facts:
        undecided -= told.get(fact.seq, set())
        if fact.kind == "question_asked" and not _is_of_input(story, fact):
            undecided.add(f"q{fact.seq}")
        elif fact.kind in {"question_asked", "wait_started"}:
            asleep.add(_place_of(fact))
        elif fact.kind == "decided":
            undecided.discard(fact.body["question"])
        elif fact.kind in {"tool_started", "tool_finished"}:
            undecided -= _names_of(story, fact) if undecided else set()
            asleep.discard(_place_of(fact))
        elif fact.kind in {"model_answered", "finished"} and undecided:
            yield "I11", f"the run went on at {fact.seq} while {sorted(undecided)} were open"
            return
        elif fact.body.get("status") == "suspended" and not undecided and not asleep:
            yield "L1", f"it was suspended at {fact.seq} with nothing that could wake it"


def _place_of(fact: Fact) -> tuple[str, int, int]:
    return fact.lane, fact.body["turn"], fact.body["index"]


def _names_of(story: Story, fact: Fact) -> set[str]:
    """The questions of the call that `fact` is of."""
    return {name for name, call in story.questions.items() if fact in call.facts}


def _dispatch(fact: Fact) -> tuple[str, str, int, int]:
    body = fact.body
    return body.get("key", ""), body["digest"], body.get("attempt", 1), fact.epoch
