"""The checker of invariants sees what must never become of approvals, waits and events."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest

from agentkit.agents import send_event
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.types import Decision
from agentkit.core.contracts.values import digest
from agentkit.state.journal.codec import encode_entry
from agentkit.testing.invariants import Evidence, check
from agentkit.tools import ToolContext, tool
from tests.agents.kit import RUN, call, calls, entries_of, then
from tests.agents.test_waits import Hall


@tool(side_effecting=True, requires_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@tool(side_effecting=False)
async def nap(ctx: ToolContext) -> str:
    """Sleep, and wait."""
    await ctx.sleep(60)
    return str(await ctx.wait_for("bell"))


async def _entries(answer: Decision) -> list[e.Entry]:
    hall = Hall(pay, nap)
    hall.llm = then(calls(call("pay", cents=5), call("nap", call_id="c2")))
    first = await hall.run()
    assert first.suspended is not None
    await hall.resume({first.suspended.questions[0].id: answer})
    hall.clock.advance(60.0)
    await hall.resume()
    await send_event(hall.store, RUN, "bell", 1, event_id="b1")
    assert "done" == (await hall.resume()).output
    return await entries_of(hall.store)


def violated(bodies: Sequence[e.Entry]) -> set[str]:
    """The invariants that this journal breaks, numbered and chained anew."""
    rows: list[Row] = []
    for seq, entry in enumerate(bodies, 1):
        placed = msgspec.structs.replace(entry, seq=seq, id=entry.id and f"n{seq}")
        rows.append(encode_entry(placed, before=rows[-1].check if rows else b"", run_id=RUN))
    return {one.invariant for one in check(Evidence(run=RUN, rows=tuple(rows)))}


def _changed(entry: e.Entry, **fields: object) -> e.Entry:
    return msgspec.structs.replace(entry, body=msgspec.structs.replace(entry.body, **fields))


Tamper = Callable[[list[e.Entry]], list[e.Entry]]


def _where(kind: type, **fields: object) -> Callable[[e.Entry], bool]:
    return lambda one: (
        isinstance(one.body, kind)
        and all(getattr(one.body, name) == value for name, value in fields.items())
    )


def _each(found: Callable[[e.Entry], bool], *put: Callable[[e.Entry], e.Entry]) -> Tamper:
    def tampered(entries: list[e.Entry]) -> list[e.Entry]:
        assert any(map(found, entries))
        return [
            new
            for one in entries
            for new in ([change(one) for change in put] if found(one) else [one])
        ]

    return tampered


def _same(entry: e.Entry) -> e.Entry:
    return entry


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(
            _each(_where(e.Decided), lambda one: _changed(one, answer="reject")),
            id="made although it was rejected",
        ),
        pytest.param(
            _each(_where(e.ToolStarted, name="pay"), lambda one: _changed(one, digest="other")),
            id="made otherwise than approved",
        ),
        pytest.param(
            _each(_where(e.WaitEnded), lambda one: msgspec.structs.replace(one, at=1)),
            id="over before its time",
        ),
        pytest.param(
            _each(_where(e.EventReceived), lambda one: _changed(one, name="other")),
            id="entered again without its event",
        ),
        pytest.param(_each(_where(e.WaitEnded), _same, _same), id="over twice"),
    ],
)
async def test_i11_is_seen_to_be_broken(tamper: Tamper) -> None:
    """A sound journal is found sound; with one entry changed it is not."""
    entries = await _entries(Decision("approve"))

    assert set() == violated(entries)
    assert "I11" in violated(tamper(entries))


@tool(side_effecting=False)
async def choose(ctx: ToolContext) -> str:
    """Ask two things at once."""
    return str(await asyncio.gather(ctx.ask("Name?"), ctx.ask("Age?", timeout=60)))


async def _asked() -> list[e.Entry]:
    """A call that was approved, one that has asked twice, and one that was refused and asked for
    again.
    """
    hall = Hall(pay, choose)
    hall.llm = then(
        [
            calls(call("pay", cents=5), call("choose", call_id="c2")),
            calls(call("pay", cents=6)),
            calls(call("pay", cents=6)),
        ]
    )
    first = await hall.run()
    assert first.suspended is not None
    approval, name, age = (one.id for one in first.suspended.questions)
    second = await hall.resume({approval: "approve", name: "ann", age: 7})
    assert second.suspended is not None
    assert "done" == (await hall.resume({second.suspended.questions[0].id: "reject"})).output
    return await entries_of(hall.store)


def _at(nth: int, kind: type, change: Tamper) -> Tamper:
    """Change the journal from the n-th entry of this kind on."""

    def tampered(entries: list[e.Entry]) -> list[e.Entry]:
        place = [at for at, one in enumerate(entries) if isinstance(one.body, kind)][nth]
        return [*entries[:place], *change(entries[place:])]

    return tampered


def _made(entries: list[e.Entry]) -> list[e.Entry]:
    """The last call, which was refused as it was before, was made instead."""
    finished = entries[0]
    body = finished.body
    assert isinstance(body, e.ToolFinished)
    started = e.ToolStarted(body.turn, body.index, "pay", digest("pay", {"cents": 6}), "key")
    return [msgspec.structs.replace(finished, body=started), *entries]


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(_at(1, e.Decided, lambda rest: [rest[0], *rest]), id="answered twice"),
        pytest.param(
            _at(1, e.Decided, lambda rest: [_changed(rest[0], digest="other"), *rest[1:]]),
            id="answered for other arguments",
        ),
        pytest.param(_at(0, e.Decided, lambda rest: rest[1:]), id="made undecided"),
        pytest.param(_at(0, e.Decided, lambda rest: [rest[0], *rest]), id="approved twice"),
        pytest.param(
            _at(0, e.Decided, lambda rest: [_changed(rest[0], digest="other"), *rest[1:]]),
            id="approved for other arguments",
        ),
        pytest.param(
            _at(0, e.QuestionAsked, lambda rest: [rest[0], *rest]), id="asked again undecided"
        ),
        pytest.param(_at(-1, e.ToolFinished, _made), id="made after it was refused"),
    ],
)
async def test_i11_of_answers_and_refusals_is_seen_to_be_broken(tamper: Tamper) -> None:
    """One word for each question, about what was shown; and a refusal stays one."""
    entries = await _asked()

    assert set() == violated(entries)
    assert "I11" in violated(tamper(entries))


async def test_i4_an_event_that_is_recorded_twice_is_seen() -> None:
    """The runtime refuses the second one; a journal that has it is broken."""
    entries = await _entries(Decision("edit", value={"cents": 6}))
    twice = _each(_where(e.EventReceived), _same, _same)

    assert set() == violated(entries)
    assert "I4" in violated(twice(entries))
