"""One checker for what must hold of every run, whatever was done to its workers.

It looks at the journal as the store keeps it and at witnesses outside: the log of effects, the
promises that were made (events, results), the answers that were paid for, earlier reads, and the
hours of the kills. The journal is read twice: by the product's own codec and fold, and again by
code that shares nothing with them.

| invariant | is checked by |
|---|---|
| I1 | no call is started after its outcome, and none runs more often than it has intents |
| I2 | effects of one key: one, and one more for each human who said "run again"; no key twice |
| I3 | each event told stands in the journal with its text; the result is that; messages are read |
| I4 | one start, as submitted; turns, versions 1, 2, 3; notes, values and open intents once each |
| I5 | seq without a gap; every earlier read is a prefix of the journal; the head fits its end |
| I6 | epochs never fall along seq and in the head; no tool begins while a newer epoch has the run |
| I7 | each request that left: every call one result, in order; all requests tell one past |
| I8 | each effect has an intent (key, digest, attempt, epoch), each intent is for what was asked |
| I9 | usage added up by other rules is what fold, head and result say; no answer lost silently |
| I10 | nothing follows the terminal entry; nothing begins after a cancel, nor while paused |
| I11 | no call moves before its question is decided (once, for its digest) or its wait is over |
| I12 | the product refuses an entry of a newer release, and appends nothing behind one |
| I13 | one outcome per call; each doubt leaves as its tool allows and as a person said |
| I14 | the product refuses a changed byte at its position, and sound bytes nowhere |
| I15 | the start has the run's scope; handles on other scopes saw nothing (`seen_by_strangers`) |
| I16 | by the harness, not here: a worker that does not end is `WorkerStuck` |
| I17 | no secret in any entry, promise, logged line or stored file |
| L1 | the run has finished, with the output of an undisturbed one |
| L2 | from each kill to the next worker's lease: at most a lease |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.heads import Head, Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, JSONObject, Message, Scope, Usage
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lease import LEASE_SECONDS
from agentkit.testing import _call_rules as call_rules
from agentkit.testing import _outer_rules as outer_rules
from agentkit.testing import _start_rules as start_rules
from agentkit.testing import _stop_rules as stop_rules
from agentkit.testing import _wait_rules as wait_rules
from agentkit.testing import _word_rules as word_rules
from agentkit.testing._facts import Fact, Story, tell
from agentkit.testing.effects import Effect

__all__ = [
    "Evidence",
    "Kill",
    "ToolKind",
    "Violation",
    "check",
    "read_rows",
    "report",
    "seen_by_strangers",
]

ToolKind: TypeAlias = Literal["read", "idempotent", "reconciled", "transactional", "plain"]
"""What a tool said of itself: without side effects, with a key that its sink honours, able to tell
what became of a call, writing in the transaction of its outcome, or nothing."""


class Violation(NamedTuple):
    """Something that must never be. `invariant`: see the table above."""

    invariant: str
    run: str
    what: str


class Kill(NamedTuple):
    """A worker's death by SIGKILL.

    Args:
        seen: how many entries the journal had afterwards.
        at: when it was known to be dead, in seconds since the Unix epoch.
    """

    seen: int
    at: float


class Evidence(msgspec.Struct, frozen=True):
    """What is known about one run.

    Args:
        run: the run.
        rows: its journal.
        head: its head, as it was read with them.
        effects: what its tools did outside, in order.
        promises: what was told to the outside: objects with `event`, `id`, `text`, and for a
            result `stop_reason`, `output` and `usage`.
        answers: what was asked of the model and bought from it, as `CrashingLLM` writes it down.
        tools: every tool whose effects are logged, and what it is.
        earlier: the journal as it was read at earlier times.
        kills: deaths after each of which another worker was started at once.
        takeover_seconds: how long the run may have waited for that one.
        output: what an undisturbed run answers; `None` where the run need not have ended.
        scope: the key of the scope that the run belongs to.
        strangers: what was seen of the run under other scopes, see `seen_by_strangers`.
        secrets: texts that may stand nowhere.
        stored: where else to look for them: names, and the bytes of files, logs and terminals.
    """

    run: str
    rows: tuple[Row, ...]
    effects: tuple[Effect, ...] = ()
    promises: tuple[dict[str, JSON], ...] = ()
    answers: tuple[dict[str, JSON], ...] = ()
    tools: Mapping[str, ToolKind] = {}
    earlier: tuple[tuple[Row, ...], ...] = ()
    kills: tuple[Kill, ...] = ()
    takeover_seconds: float = LEASE_SECONDS
    output: str | None = None
    scope: str | None = None
    strangers: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    stored: Mapping[str, bytes] = {}
    head: Head | None = None


async def read_rows(store: JournalPort, run: str) -> tuple[Row, ...]:
    """The whole journal, page by page."""
    rows: list[Row] = []
    while page := await store.read(run, after=len(rows)):
        rows += page
    return tuple(rows)


async def seen_by_strangers(store: JournalPort, run: str) -> tuple[str, ...]:
    """What a handle on another scope sees of the run; empty, unless scopes leak."""
    found = []
    for scope in (Scope("a stranger"), Scope("", "a stranger"), Scope("a stranger", run)):
        other = store.scoped(scope)
        if await other.head(run) is not None:
            found.append(f"its head as {scope}")
        if await other.read(run):
            found.append(f"its entries as {scope}")
        if run in {one.run for one in (await other.list_runs())[0]}:
            found.append(f"its name in the list as {scope}")
    return tuple(found)


def check(evidence: Evidence) -> list[Violation]:
    """Everything that is wrong; empty for a sound run, finished or not."""
    run, rows = evidence.run, evidence.rows
    found = [*outer_rules.intact(rows, run=run)]
    found += [("I5", what) for what in _rewritten(evidence)]
    found += outer_rules.untouched_if_newer(rows, evidence.earlier)
    found += outer_rules.kept_secret(_places(evidence), evidence.secrets)
    if not found and outer_rules.first_newer(rows) is None:  # a newer release's is its to judge
        story = tell(rows)
        found += _order(story)
        found += _numbers(story)
        found += _promises(evidence, story)
        found += _money(evidence, story)
        found += _requests(evidence)
        found += call_rules.once(story, evidence.effects, evidence.tools)
        found += call_rules.settled(story, evidence.tools)
        found += call_rules.decisions(story)
        found += word_rules.intended(story)
        found += word_rules.heeded(story)
        found += word_rules.heard(story, evidence.answers)
        found += wait_rules.waking(story)
        found += stop_rules.stopped(story)
        found += outer_rules.kept_apart(story, scope=evidence.scope, strangers=evidence.strangers)
        found += outer_rules.taken_over(
            rows, evidence.kills, limit_seconds=evidence.takeover_seconds
        )
        found += _folded(evidence, story)
        found += _ended(evidence, story)
    return [Violation(name, run, what) for name, what in found]


def report(violations: Sequence[Violation]) -> str:
    """A text for people: one line each, or that there are none."""
    if not violations:
        return "no invariant is violated"
    lines = [f"{v.invariant}  run {v.run!r}: {v.what}" for v in violations]
    return "\n".join([f"{len(violations)} violations of invariants:", *lines])


def _places(evidence: Evidence) -> dict[str, bytes]:
    """Everything that was kept or told, by name."""
    return {
        **{f"entry {row.seq}": row.body for row in evidence.rows},
        "the promises": msgspec.json.encode(evidence.promises),
        "the log of answers": msgspec.json.encode(evidence.answers),
        "the log of effects": msgspec.json.encode(evidence.effects),
        **evidence.stored,
    }


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
    yield from start_rules.beginnings(story)


def _numbers(story: Story) -> Iterator[tuple[str, str]]:
    """I4: each lane's answers, and its versions, are numbered 1, 2, 3 and so on."""
    for kind, field in (("model_answered", "turn"), ("step_completed", "version")):
        for lane in sorted({fact.lane for fact in story.of(kind)}):
            numbers = [fact.body[field] for fact in story.of(kind) if fact.lane == lane]
            if numbers != list(range(1, len(numbers) + 1)):
                yield "I4", f"the {field}s of lane {lane!r} are {numbers}"


_TOLD_FROM = {
    "tool_call": {"model_answered", "tool_started"},
    "tool_result": {"tool_finished", "outcome_reported", "forked"},
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
        elif event == "tool_result" and fact and told["text"] not in _contents(fact):
            yield "I3", f"tool_result {seq} was told as {told['text']!r}"
        elif event == "step" and fact and told["text"] != f"iteration:{fact.body['iteration']}":
            yield "I3", f"step {seq} was told as {told['text']!r}"
        elif event == "final" and told.get("stop_reason") == "completed":
            yield from _told_result(told, story.end)


def _contents(fact: Fact) -> list[str]:
    """What an entry says that the model sees of calls; a fork may have edited several."""
    if fact.kind == "forked":
        return [edit["content"] for edit in fact.body.get("edits", ())]
    return [fact.body.get("content", "")]


def _told_result(told: JSONObject, end: Fact | None) -> Iterator[tuple[str, str]]:
    output = end.body["output"] if end is not None and end.kind == "finished" else None
    if output != told.get("output"):
        yield "I3", f"the result {told.get('output')!r} was given, the journal has {output!r}"


def _money(evidence: Evidence, story: Story) -> Iterator[tuple[str, str]]:
    """I9: each answer is counted once, and an answer that was paid and lost is not silent."""
    bought = [line for line in evidence.answers if line["kind"] == "bought"]
    recorded = [fact for fact in story.of("model_answered") if fact.seq > story.copied]
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
    usage, asking, parked = Usage(), False, False
    for fact in story.facts:
        body = fact.body
        if fact.kind == "run_started":
            asking = True
        elif fact.kind == "forked":  # what is before was paid by the run that was copied
            usage, parked = Usage(), False
            asking = asking or "task" in body
        elif fact.kind == "model_answered":
            usage += Usage(*body.get("usage", ()))
            unseen = bool(body.get("unseen")) and not body.get("calls")
            asking = body.get("stop") == "pause" or unseen
        elif fact.kind == "step_completed":
            asking = body.get("status", "running") == "running"
        elif fact.kind == "parked" or (fact.kind == "unparked" and not body.get("pause_only")):
            parked = fact.kind == "parked"  # one that is only paused may still be asking
        lost = fact.kind == "model_failed" and body.get("unknown", False)
        taken = fact.kind == "lease_taken" and body["why"] == "takeover"
        if lost or (taken and asking and not parked):
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


def _ended(evidence: Evidence, story: Story) -> Iterator[tuple[str, str]]:
    """L1: nothing disturbs the run any more, so it has ended, and as if nothing had."""
    end = story.end
    output = end.body["output"] if end is not None and end.kind == "finished" else None
    if evidence.output is not None and output != evidence.output:
        yield "L1", f"it ended with {output!r}, undisturbed it says {evidence.output!r}"


def _folded(evidence: Evidence, story: Story) -> Iterator[tuple[str, str]]:
    """The product's own reading agrees with the other one."""
    state = RunState(evidence.run)
    try:
        for entry, row_check in decode_rows(
            evidence.rows, after=0, before=b"", run_id=evidence.run
        ):
            state.apply(entry, row_check)
    except AgentkitError as error:
        yield "I5", f"the journal cannot be folded: {error}"
        return
    yield from outer_rules.headed(evidence.head, evidence.rows, story, state.summary())
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
