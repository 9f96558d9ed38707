"""One checker for what must hold of every run, whatever was done to its workers.

It looks at four witnesses: the journal as the store keeps it, the log of effects outside, the
promises that were made (events, results), and the answers that were paid for. The journal is read
twice: by the product's own codec and fold, and again by code that shares nothing with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.ports import JournalPort, Row
from agentkit.core.contracts.types import JSON, JSONObject, Message, Usage
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.fold import RunState
from agentkit.testing import _call_rules as call_rules
from agentkit.testing._facts import Fact, Story, chain, tell
from agentkit.testing.effects import Effect

__all__ = ["Evidence", "ToolKind", "Violation", "check", "read_rows", "report"]

ToolKind: TypeAlias = Literal["read", "idempotent", "plain"]
"""What a tool said of itself: without side effects, with a key that its sink honours, or
neither."""


class Violation(NamedTuple):
    """Something that must never be. `invariant`: `I1` to `I13`."""

    invariant: str
    run: str
    what: str


class Evidence(msgspec.Struct, frozen=True):
    """What is known about one run.

    Args:
        run: the run.
        rows: its journal.
        effects: what its tools did outside, in order.
        promises: what was told to the outside: objects with `event`, `id`, `text`, and for a
            result `stop_reason`, `output` and `usage`.
        answers: what was asked of the model and bought from it, as `CrashingLLM` writes it down.
        tools: every tool whose effects are logged, and what it is.
        earlier: the journal as it was read at earlier times.
    """

    run: str
    rows: tuple[Row, ...]
    effects: tuple[Effect, ...] = ()
    promises: tuple[dict[str, JSON], ...] = ()
    answers: tuple[dict[str, JSON], ...] = ()
    tools: Mapping[str, ToolKind] = {}
    earlier: tuple[tuple[Row, ...], ...] = ()


async def read_rows(store: JournalPort, run: str) -> tuple[Row, ...]:
    """The whole journal, page by page."""
    rows: list[Row] = []
    while page := await store.read(run, after=len(rows)):
        rows += page
    return tuple(rows)


def check(evidence: Evidence) -> list[Violation]:
    """Everything that is wrong; empty for a sound run, finished or not."""
    run, rows = evidence.run, evidence.rows
    found = [("I5", what) for what in chain(rows)]
    found += [("I5", what) for what in _rewritten(evidence)]
    if not found:
        story = tell(rows)
        found += _order(story)
        found += _numbers(story)
        found += _promises(evidence, story)
        found += _money(evidence, story)
        found += _requests(evidence)
        found += call_rules.once(story, evidence.effects, evidence.tools)
        found += call_rules.settled(story, evidence.tools)
        found += call_rules.decisions(story)
        found += _folded(evidence, story)
    return [Violation(name, run, what) for name, what in found]


def report(violations: Sequence[Violation]) -> str:
    """A text for people: one line each, or that there are none."""
    if not violations:
        return "no invariant is violated"
    lines = [f"{v.invariant}  run {v.run!r}: {v.what}" for v in violations]
    return "\n".join([f"{len(violations)} violations of invariants:", *lines])


def _rewritten(evidence: Evidence) -> Iterator[str]:
    for read in evidence.earlier:
        if evidence.rows[: len(read)] != read:
            yield f"a read of {len(read)} entries is no prefix of the journal any more"


def _order(story: Story) -> Iterator[tuple[str, str]]:
    """I4, I6, I10: entries once each, epochs that never decrease, an end that is one."""
    epoch, end = 0, story.end
    for fact in story.facts:
        if fact.epoch < epoch:
            yield "I6", f"entry {fact.seq} has epoch {fact.epoch} after {epoch}"
        epoch = max(epoch, fact.epoch)
        if end is not None and fact.seq > end.seq:
            yield "I10", f"entry {fact.seq} ({fact.kind}) follows the end at {end.seq}"
    notes = Counter(fact.id for fact in story.facts if fact.id)
    for identity, times in notes.items():
        if times > 1:
            yield "I4", f"the note {identity} was recorded {times} times"
    starts = story.of("run_started")
    if story.facts and (len(starts) != 1 or story.facts[0].kind != "run_started"):
        yield "I4", f"the run has {len(starts)} start entries, or one that is not its first"


def _numbers(story: Story) -> Iterator[tuple[str, str]]:
    """I4: each lane's answers, and its versions, are numbered 1, 2, 3 and so on."""
    for kind, field in (("model_answered", "turn"), ("step_completed", "version")):
        for lane in sorted({fact.lane for fact in story.of(kind)}):
            numbers = [fact.body[field] for fact in story.of(kind) if fact.lane == lane]
            if numbers != list(range(1, len(numbers) + 1)):
                yield "I4", f"the {field}s of lane {lane!r} are {numbers}"


_TOLD_FROM = {
    "tool_call": {"model_answered", "tool_started"},
    "tool_result": {"tool_finished"},
    "step": {"step_completed"},
    "interrupt": {"question_asked"},
}


def _promises(evidence: Evidence, story: Story) -> Iterator[tuple[str, str]]:
    """I3: whatever was told stands in the journal, and stands there as it was told."""
    for told in evidence.promises:
        event, seq = str(told["event"]), told.get("id")
        if isinstance(seq, int) and not 1 <= seq <= len(story.facts):
            yield "I3", f"{event} {seq} was told, and the journal ends at {len(story.facts)}"
            continue
        fact = story.facts[seq - 1] if isinstance(seq, int) else None
        kinds = _TOLD_FROM.get(event)
        if kinds is not None and (fact is None or fact.kind not in kinds):
            yield "I3", f"{event} {seq} was told of a {fact.kind if fact else 'missing'} entry"
        elif event == "tool_result" and fact and fact.body.get("content", "") != told["text"]:
            yield "I3", f"tool_result {seq} was told as {told['text']!r}"
        elif event == "final" and told.get("stop_reason") == "completed":
            yield from _told_result(told, story.end)


def _told_result(told: JSONObject, end: Fact | None) -> Iterator[tuple[str, str]]:
    output = end.body["output"] if end is not None and end.kind == "finished" else None
    if output != told.get("output"):
        yield "I3", f"the result {told.get('output')!r} was given, the journal has {output!r}"


def _money(evidence: Evidence, story: Story) -> Iterator[tuple[str, str]]:
    """I9: each answer is counted once, and an answer that was paid and lost is not silent."""
    bought = [line for line in evidence.answers if line["kind"] == "bought"]
    recorded = story.of("model_answered")
    lost = len(bought) - len(recorded)
    unknown = _usage(story).unknown
    if not evidence.answers:
        return
    if lost < 0:
        yield "I9", f"{len(recorded)} answers are recorded and {len(bought)} were bought"
    if lost > unknown:
        turns = sorted(Counter(str(line["turn"]) for line in bought).items())
        what = (
            f"{len(bought)} answers were bought, {len(recorded)} are recorded and {unknown} are "
            f"listed as unknown: one was bought twice or lost silently (bought by turn: {turns})"
        )
        yield "I9", what


def _usage(story: Story) -> Usage:
    """What the entries say was used, added up by other rules than the fold's code."""
    usage, calls_open, finished, parked = Usage(), 0, False, False
    settled: set[tuple[int, int]] = set()
    for fact in story.facts:
        body = fact.body
        if fact.kind == "model_answered":
            usage += Usage(*body.get("usage", ()))
            calls_open = len(body.get("calls", ()))
            finished = calls_open == 0 and body.get("stop") != "pause"
        elif fact.settles and (place := (body["turn"], body["index"])) not in settled:
            settled.add(place)
            calls_open -= 1
        elif fact.kind in {"parked", "unparked"}:
            parked = fact.kind == "parked"
        lost = fact.kind == "model_failed" and body.get("unknown", False)
        taken = fact.kind == "lease_taken" and body["why"] == "takeover"
        if lost or (taken and not (calls_open or finished or parked)):
            usage += Usage(unknown=1)
    return usage


def _requests(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """I7: each request that left was valid, and no later one told another past."""
    longest: list[JSON] = []
    for line in evidence.answers:
        shapes = line["messages"] if line["kind"] == "asked" else None
        if not isinstance(shapes, list):
            continue
        what = f"the request for answer {line['turn']}"
        triples = [(s[0], s[1], s[2]) for s in shapes if isinstance(s, list)]
        for problem in _pairing(triples):
            yield "I7", f"{what}: {problem}"
        shared = min(len(longest), len(shapes))
        if longest[:shared] != shapes[:shared]:
            yield "I7", f"{what} tells another past than an earlier request"
        longest = max(longest, shapes, key=len)


def _pairing(messages: Sequence[tuple[object, object, object]]) -> Iterator[str]:
    """What a provider would refuse about calls and results; (role, call ids, answered id) each."""
    due: list[object] = []
    seen: set[object] = set()
    for position, (role, calls, answered) in enumerate(messages):
        if role == "tool":
            if not due or due.pop(0) != answered:
                yield f"message {position} answers {answered!r}, which is not the next open call"
            continue
        if due:
            yield f"message {position} follows calls without results: {due}"
        due = list(calls) if isinstance(calls, list | tuple) else []
        if seen & set(due) or len(set(due)) < len(due):
            yield f"message {position} uses a call id again: {due}"
        seen |= set(due)
    if due:
        yield f"the last calls have no results: {due}"


def _folded(evidence: Evidence, story: Story) -> Iterator[tuple[str, str]]:
    """The product's own reading agrees with the other one."""
    state = RunState(evidence.run)
    try:
        for entry, row_check in decode_rows(
            evidence.rows, after=0, before=b"", run_id=evidence.run
        ):
            state.apply(entry, row_check)
    except AgentkitError as error:
        yield "I5", f"the journal cannot be read: {error}"
        return
    expected = _usage(story)
    if state.usage != expected:
        yield "I9", f"usage is folded as {state.usage}, the entries add up to {expected}"
    for told in evidence.promises:
        if told["event"] == "final" and told.get("stop_reason") == "completed":
            usage = msgspec.convert(told["usage"], Usage)
            if usage != expected:
                yield "I9", f"the result told {usage}, the entries add up to {expected}"
    for lane in state.lanes.values():
        for repair in lane.transcript.repairs:
            yield "I7", f"the transcript had to be mended: {repair}"
        messages: Sequence[Message] = lane.transcript.view()
        shapes = [(m.role, [c.id for c in m.tool_calls], m.tool_call_id) for m in messages]
        for problem in _pairing(shapes):
            if state.end is not None or not problem.startswith("the last calls"):
                yield "I7", f"the transcript: {problem}"
