"""The checker itself: it finds nothing in a sound run, and each tampering by its name."""

import asyncio
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

from agentkit.agents import AgentEvent
from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew, OutcomeUnknown
from agentkit.core.contracts.heads import Head, Row, Summary
from agentkit.core.contracts.types import JSON, Decision, Scope
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing import _outer_rules as outer_rules
from agentkit.testing import invariants
from agentkit.testing.crash import CrashPlan
from agentkit.testing.crash.scenario import TASK, Folder, make_agent, promise
from agentkit.testing.invariants import (
    Evidence,
    Kill,
    Violation,
    check,
    read_rows,
    report,
    seen_by_strangers,
)

RUN = "r1"


@pytest.fixture
def sound(tmp_path: Path) -> Evidence:
    """A finished run of three steps, with a question that was answered."""

    class Doubtful(CrashPlan):
        """The first plain effect happens, and its tool does not know."""

        def border(self, name: str) -> None:
            super().border(name)
            if name == "effect:after" and self._by_name[name] == 2:
                raise OutcomeUnknown("who knows")

    folder = Folder(tmp_path)
    store = InMemoryCheckpointStore()
    agent, context = make_agent(store, Doubtful(), folder, run=RUN)

    async def live() -> tuple[tuple[Row, ...], Head | None]:
        asked = []
        async for event in agent.stream(TASK, context):
            folder.promises.write(promise(RUN, event))
            asked += [event.question.id] if event.question is not None else []
        decision = Decision("done", "sent a")
        result = await agent.resume(RUN, dict.fromkeys(asked, decision), context)
        folder.promises.write(promise(RUN, AgentEvent("final", result=result)))
        return await read_rows(store, RUN), await store.head(RUN)

    rows, head = asyncio.run(live())
    return Evidence(
        run=RUN,
        rows=rows,
        head=head,
        effects=tuple(folder.effects.read()),
        promises=tuple(folder.promises.read()),
        answers=tuple(folder.answers.read()),
        tools={"lookup": "read", "upsert": "idempotent", "notify": "plain"},
    )


Bodies = list[list[JSON]]


def _rewritten(evidence: Evidence, change: Callable[[Bodies], Bodies | None]) -> Evidence:
    """The evidence with another journal, whose numbers and checksums fit."""
    entries: Bodies = [msgspec.json.decode(row.body) for row in evidence.rows]
    entries = change(entries) or entries
    rows, before = [], b""
    for seq, entry in enumerate(entries, 1):
        body = msgspec.json.encode([seq, *entry[1:]])
        before = blake2b(before + body, digest_size=8).digest()
        rows.append(Row(seq, body, before))
    return msgspec.structs.replace(evidence, rows=tuple(rows))


def _index(entries: Bodies, kind: str, nth: int = 0) -> int:
    return [i for i, entry in enumerate(entries) if entry[5]["type"] == kind][nth]  # type: ignore[index,call-overload]  # JSON


def _drop(kind: str, nth: int = 0) -> Callable[[Evidence], Evidence]:
    def change(entries: Bodies) -> Bodies:
        del entries[_index(entries, kind, nth)]
        return entries

    return lambda evidence: _rewritten(evidence, change)


def _repeat(kind: str, nth: int = 0, *, at_end: bool = False) -> Callable[[Evidence], Evidence]:
    def change(entries: Bodies) -> Bodies:
        again = _index(entries, kind, nth)
        entries.insert(len(entries) if at_end else again + 1, entries[again])
        return entries

    return lambda evidence: _rewritten(evidence, change)


def _edit(kind: str, field: str, value: JSON, nth: int = 0) -> Callable[[Evidence], Evidence]:
    def change(entries: Bodies) -> None:
        entries[_index(entries, kind, nth)][5][field] = value  # type: ignore[index,call-overload]  # JSON

    return lambda evidence: _rewritten(evidence, change)


def _reported(attempt: int) -> Callable[[Evidence], Evidence]:
    """The last outcome is told by a note instead, about this attempt."""

    def change(entries: Bodies) -> None:
        last = entries[_index(entries, "tool_finished", -1)]
        body = {"outcome": "ok", **last[5], "type": "outcome_reported", "attempt": attempt}  # type: ignore[dict-item]  # JSON
        last[5] = body

    return lambda evidence: _rewritten(evidence, change)


def _epoch(nth: int, value: int) -> Callable[[Evidence], Evidence]:
    def change(entries: Bodies) -> None:
        entries[nth][2] = value

    return lambda evidence: _rewritten(evidence, change)


def _effects(kind: str, *, times: int) -> Callable[[Evidence], Evidence]:
    """Every line of a kind so many times."""

    def change(evidence: Evidence) -> Evidence:
        lines = [one for one in evidence.effects for _ in range(times if one.kind == kind else 1)]
        return msgspec.structs.replace(evidence, effects=tuple(lines))

    return change


def _cut(evidence: Evidence) -> Evidence:
    return msgspec.structs.replace(evidence, rows=evidence.rows[:6])


def _gap(evidence: Evidence) -> Evidence:
    return msgspec.structs.replace(evidence, rows=evidence.rows[:3] + evidence.rows[4:])


def _flipped(evidence: Evidence) -> Evidence:
    row = evidence.rows[4]
    bad = msgspec.structs.replace(row, body=row.body.replace(b"a", b"b", 1))
    return msgspec.structs.replace(evidence, rows=(*evidence.rows[:4], bad, *evidence.rows[5:]))


def _newer_kind(evidence: Evidence) -> Evidence:
    """The last entry is of a kind that no release knows yet; a read of it comes before the end."""

    def change(entries: Bodies) -> None:
        entries[8][5]["type"] = "kind_of_tomorrow"  # type: ignore[index,call-overload]  # JSON

    newer = _rewritten(evidence, change)
    return msgspec.structs.replace(newer, earlier=(newer.rows[:10],))


def _with(**changes: object) -> Callable[[Evidence], Evidence]:
    return lambda evidence: msgspec.structs.replace(evidence, **changes)


def _head(**changes: object) -> Callable[[Evidence], Evidence]:
    def change(evidence: Evidence) -> Evidence:
        assert evidence.head is not None
        head = msgspec.structs.replace(evidence.head, **changes)
        return msgspec.structs.replace(evidence, head=head)

    return change


def _late(evidence: Evidence) -> Evidence:
    at = msgspec.json.decode(evidence.rows[1].body)[4] / 1000
    return msgspec.structs.replace(evidence, kills=(Kill(1, at - 16.0),))


def _other_past(evidence: Evidence) -> Evidence:
    return msgspec.structs.replace(evidence, earlier=(evidence.rows[1:3],))


def _bought_twice(evidence: Evidence) -> Evidence:
    bought = [line for line in evidence.answers if line["kind"] == "bought"]
    return msgspec.structs.replace(evidence, answers=(*evidence.answers, bought[0]))


def _told_otherwise(evidence: Evidence) -> Evidence:
    told = [
        {**line, "text": "else"} if line["event"] == "tool_result" else line
        for line in evidence.promises
    ]
    return msgspec.structs.replace(evidence, promises=tuple(told))


def _dangling(evidence: Evidence) -> Evidence:
    asked = next(line for line in reversed(evidence.answers) if line["kind"] == "asked")
    messages = asked["messages"]
    assert isinstance(messages, list)
    return msgspec.structs.replace(
        evidence, answers=(*evidence.answers, {**asked, "messages": messages[:-1]})
    )


def _kept_after_an_error(evidence: Evidence) -> Evidence:
    """Where `upsert` is transactional, its effect cannot be there beside an error."""
    tools = {**evidence.tools, "upsert": "transactional"}
    transactional = msgspec.structs.replace(evidence, tools=tools)
    upserts = [one for one in evidence.effects if one.tool == "upsert" and one.kind == "effect"]

    def change(entries: Bodies) -> None:
        started = [entry[5] for entry in entries if entry[5].get("key") == upserts[0].key]  # type: ignore[union-attr]  # JSON
        turn = started[0]["turn"]  # type: ignore[index,call-overload]  # JSON
        for entry in entries:
            body = entry[5]
            assert isinstance(body, dict)
            if body["type"] == "tool_finished" and body["turn"] == turn:
                body["outcome"] = "error"

    return _rewritten(transactional, change)


def _all(*changes: Callable[[Evidence], Evidence]) -> Callable[[Evidence], Evidence]:
    def change(evidence: Evidence) -> Evidence:
        for one in changes:
            evidence = one(evidence)
        return evidence

    return change


def _guessed(outcome: str) -> Callable[[Evidence], Evidence]:
    """Nobody was asked about the call in doubt; the next worker has said this of it."""

    def change(entries: Bodies) -> None:
        said = next(entry for entry in entries if entry[5].get("by") == "human")  # type: ignore[union-attr]  # JSON
        said[5].update(outcome=outcome, by="")  # type: ignore[union-attr]  # JSON

    return lambda evidence: _all(_drop("question_asked"), _drop("decided"))(
        _rewritten(evidence, change)
    )


def _of_other_arguments(evidence: Evidence) -> Evidence:
    """A call was made with arguments that nobody asked for, as its intent says, too."""
    effects = [
        msgspec.structs.replace(one, digest="0" * 32) if one.key == evidence.effects[0].key else one
        for one in evidence.effects
    ]
    key = evidence.effects[0].key

    def change(entries: Bodies) -> None:
        for entry in entries:
            if entry[5]["type"] == "tool_started" and entry[5].get("key", "") == key:  # type: ignore[index,call-overload,union-attr]  # JSON
                entry[5]["digest"] = "0" * 32  # type: ignore[index,call-overload]  # JSON

    return _rewritten(msgspec.structs.replace(evidence, effects=tuple(effects)), change)


def _with_a_shared_key(evidence: Evidence) -> Evidence:
    """Two calls have one key, so the sink has refused the second."""
    first, second = list(dict.fromkeys(one.key for one in evidence.effects if one.key))[:2]
    effects = tuple(one for one in evidence.effects if one.key != second)

    def change(entries: Bodies) -> None:
        for entry in entries:
            if entry[5].get("key") == second:  # type: ignore[union-attr]  # JSON
                entry[5]["key"] = first  # type: ignore[index,call-overload]  # JSON

    return _rewritten(msgspec.structs.replace(evidence, effects=effects), change)


def _kept_twice(evidence: Evidence) -> Evidence:
    """A call has two values under one name."""

    def change(entries: Bodies) -> None:
        at = _index(entries, "tool_started")
        place = {name: entries[at][5][name] for name in ("turn", "index")}  # type: ignore[index,call-overload]  # JSON
        for value in ("1", "2"):
            body = {"type": "value_recorded", **place, "name": "step", "value": value}
            entries.insert(at + 1, [*entries[at][:5], body])

    return _rewritten(evidence, change)


def _told_of_another_step(evidence: Evidence) -> Evidence:
    kinds = [msgspec.json.decode(row.body)[5]["type"] for row in evidence.rows]
    told = {"event": "step", "id": kinds.index("step_completed") + 1, "text": "iteration:9"}
    return msgspec.structs.replace(evidence, promises=(*evidence.promises, told))


TAMPERINGS = [
    pytest.param("I1", _effects("run", times=2), id="made-twice-on-one-intent"),
    pytest.param("I1", _repeat("tool_started", at_end=True), id="started-after-its-outcome"),
    pytest.param("I2", _effects("effect", times=2), id="two-effects"),
    pytest.param("I2", _kept_after_an_error, id="an-effect-beside-the-error-of-its-transaction"),
    pytest.param("I2", _with_a_shared_key, id="two-calls-with-one-key"),
    pytest.param("I3", _cut, id="told-entries-are-gone"),
    pytest.param("I3", _told_otherwise, id="told-otherwise"),
    pytest.param("I3", _edit("finished", "output", "else"), id="another-result"),
    pytest.param("I3", _told_of_another_step, id="another-step"),
    pytest.param("I4", _kept_twice, id="two-values-under-one-name"),
    pytest.param("I4", _repeat("model_answered"), id="an-answer-twice"),
    pytest.param("I4", _repeat("step_completed"), id="a-step-twice"),
    pytest.param("I4", _drop("run_started"), id="no-start"),
    pytest.param("I5", _gap, id="a-gap"),
    pytest.param("I5", _other_past, id="another-past"),
    pytest.param("I5", _head(seq=7), id="a-head-of-another-entry"),
    pytest.param("I5", _head(check=b"12345678"), id="a-head-of-another-past"),
    pytest.param("I5", _head(summary=Summary("suspended")), id="a-head-that-says-otherwise"),
    pytest.param("I6", _epoch(5, 1), id="an-older-epoch"),
    pytest.param("I6", _head(epoch=1), id="a-head-of-an-older-epoch"),
    pytest.param("I7", _dangling, id="a-request-with-an-open-call"),
    pytest.param("I7", _drop("tool_finished", -1), id="a-result-is-missing"),
    pytest.param("I8", _drop("tool_started"), id="no-intent"),
    pytest.param("I8", _edit("tool_started", "digest", "0" * 32), id="another-digest"),
    pytest.param("I8", _of_other_arguments, id="made-with-other-arguments"),
    pytest.param("I8", _effects("effect", times=0), id="done-without-an-effect"),
    pytest.param("I9", _bought_twice, id="bought-twice"),
    pytest.param("I9", _drop("model_answered", -1), id="a-paid-answer-is-missing"),
    pytest.param("I9", _head(summary=Summary("done")), id="a-head-that-cost-nothing"),
    pytest.param("I10", _repeat("step_completed", at_end=True), id="something-after-the-end"),
    pytest.param("I11", _drop("decided"), id="nobody-decided"),
    pytest.param("I11", _edit("decided", "digest", "0" * 32), id="decided-of-another-digest"),
    pytest.param("I11", _repeat("decided"), id="decided-twice"),
    pytest.param("I12", _newer_kind, id="written-behind-a-newer-release"),
    pytest.param("I13", _drop("tool_finished", -1), id="no-outcome"),
    pytest.param("I13", _guessed("error"), id="an-outcome-that-nobody-knows"),
    pytest.param("I13", _guessed("skipped"), id="dropped-without-a-word"),
    pytest.param("I13", _edit("decided", "answer", "skip"), id="skipped-and-done"),
    pytest.param("I13", _edit("decided", "answer", "failed"), id="failed-and-done"),
    pytest.param("I13", _edit("decided", "answer", "run_again"), id="to-be-made-again-and-done"),
    pytest.param("I13", _edit("decided", "value", '"else"'), id="done-and-told-otherwise"),
    pytest.param("I13", _reported(9), id="an-outcome-told-of-another-attempt"),
    pytest.param("I13", _repeat("tool_finished", 0), id="two-outcomes"),
    pytest.param("I14", _flipped, id="a-changed-byte"),
    pytest.param("I15", _with(scope="acme"), id="recorded-under-another-scope"),
    pytest.param("I15", _with(strangers=("its head",)), id="seen-by-a-stranger"),
    pytest.param("I17", _with(secrets=("value of a",)), id="a-secret-in-an-entry"),
    pytest.param(
        "I17", _with(secrets=('say "so"',), stored={"log": rb'{"a":"say \"so\""}'}), id="escaped"
    ),
    pytest.param("L1", _drop("question_asked"), id="f074-suspended-with-no-waker"),
    pytest.param("L1", _with(output="else"), id="another-end"),
    pytest.param("L1", lambda evidence: _with(output="x")(_cut(evidence)), id="no-end"),
    pytest.param("L2", _late, id="taken-over-late"),
]


def _reads_all(*_: object, **__: object) -> Iterator[object]:
    return iter(())


def _refuses(error: Exception) -> Callable[..., Iterator[object]]:
    def refuse(*_: object, **__: object) -> Iterator[object]:
        raise error

    return refuse


_AT_2 = JournalDamaged("bad", run_id=RUN, seq=2)
BLINDNESSES = [
    pytest.param("I12", _newer_kind, _reads_all, id="reads-a-newer-release"),
    pytest.param("I12", _with(), _refuses(JournalTooNew("new")), id="refuses-its-own-release"),
    pytest.param("I14", _flipped, _reads_all, id="reads-a-changed-byte"),
    pytest.param("I14", _flipped, _refuses(_AT_2), id="names-another-position"),
    pytest.param("I14", _with(), _refuses(_AT_2), id="refuses-sound-bytes"),
]


def test_a_sound_run_breaks_nothing(sound: Evidence) -> None:
    """Also where a call was in doubt and a human answered."""
    kinds = {msgspec.json.decode(row.body)[5]["type"] for row in sound.rows}

    assert {"question_asked", "decided", "finished"} <= kinds
    assert [] == check(sound)
    assert "no invariant is violated" == report([])


@pytest.mark.parametrize(("invariant", "tamper"), TAMPERINGS)
def test_tampering_is_seen(
    sound: Evidence, invariant: str, tamper: Callable[[Evidence], Evidence]
) -> None:
    """Each invariant is violated by what violates it, and the report names it."""
    found = check(tamper(sound))

    assert invariant in {violation.invariant for violation in found}, report(found)
    assert invariant in report(found)


def test_every_invariant_has_a_row_and_a_way_to_be_broken() -> None:
    """The table of the checker names I1 to I17, L1 and L2; each can be seen broken, but for I16,
    which shows as a worker that is stuck.
    """
    named = {line.split()[1] for line in (invariants.__doc__ or "").splitlines() if "| " in line}
    broken = {str(case.values[0]) for case in [*TAMPERINGS, *BLINDNESSES]}

    assert {f"I{number}" for number in range(1, 18)} | {"L1", "L2"} == named - {"invariant"}
    assert named - {"invariant"} == broken | {"I16"}


@pytest.mark.parametrize(("invariant", "tamper", "product"), BLINDNESSES)
def test_a_product_that_reads_on_is_seen(
    sound: Evidence,
    monkeypatch: pytest.MonkeyPatch,
    invariant: str,
    tamper: Callable[[Evidence], Evidence],
    product: Callable[..., Iterator[object]],
) -> None:
    """A codec that does not refuse what is damaged or newer, or refuses what is sound."""
    monkeypatch.setattr(outer_rules, "decode_rows", product)

    found = check(tamper(sound))

    assert any(one.invariant == invariant and "product" in one.what for one in found), found


def test_a_newer_journal_is_sound_where_nothing_was_written_behind_it(sound: Evidence) -> None:
    """It is refused by the product, which is right, and no violation."""
    newer = _newer_kind(sound)

    assert [] == check(msgspec.structs.replace(newer, earlier=(newer.rows,), promises=()))


async def test_strangers_that_see_a_run_are_told(tmp_path: Path) -> None:
    """A store whose scoped handles show everything is caught; one that keeps them apart is not."""

    class Leaking(InMemoryCheckpointStore):
        def scoped(self, scope: Scope) -> InMemoryCheckpointStore:
            return self

    for store, seen in ((Leaking(), 9), (InMemoryCheckpointStore(), 0)):
        folder = Folder(tmp_path)
        agent, context = make_agent(store, CrashPlan(), folder, run=RUN, steps=0)
        await agent.run(TASK, context)

        assert seen == len(await seen_by_strangers(store, RUN))


def test_a_report_names_run_and_fact() -> None:
    """One line for each violation."""
    text = report([Violation("I1", "r7", "made twice")])

    assert "1 violations of invariants:\nI1  run 'r7': made twice" == text
