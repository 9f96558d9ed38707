"""F002, F004, F011, F012, F052, F092 to F094: what is sent is valid, whatever the journal holds."""

import asyncio
import json
from collections.abc import Sequence

import msgspec
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import CallRecord, Message, Native, ToolCall
from agentkit.core.testing import FakeLLM, Turn
from agentkit.models.providers._transcript import argument_text
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.tools import tool
from tests.agents.kit import (
    TASK,
    agent_of,
    assert_valid,
    bodies_of,
    call,
    calls,
    context,
    dead_worker,
    died_after,
    entries_of,
    events_of,
    messages_of,
    then,
    told,
)

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool(side_effecting=False)
async def look(what: str = "") -> str:
    """Look."""
    ran.append(what)
    return f"saw {what}"


AGENT = agent_of(look)
LANE = "agent:worker"


async def _damaged(*bodies: e.Body) -> InMemoryCheckpointStore:
    """A run whose journal holds these facts behind its start, as some older program left them."""
    recorded = InMemoryCheckpointStore()
    await AGENT.run(TASK, context(FakeLLM("x"), recorded))
    start = (await entries_of(recorded))[:2]
    later = [e.Entry(0, "", 0, LANE, 0, body) for body in bodies]
    return await dead_worker([*start, *later])


def _asked(turn: int, *labels: str) -> e.ModelAnswered:
    records = tuple(CallRecord(label, "look", f'{{"what":"{label}"}}') for label in labels)
    return e.ModelAnswered(turn, calls=records, stop="tool_use")


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([_asked(1, "a")], id="tail call without an intent"),
        pytest.param(
            [_asked(1, "a"), e.ModelAnswered(2, "and?", stop="pause")], id="call in the middle"
        ),
        pytest.param(
            [_asked(1, "a", "b"), e.ToolFinished(1, 1, content="B"), _asked(2, "c")],
            id="one of two calls in the middle",
        ),
        pytest.param([_asked(1, "a"), e.StepCompleted(1, 1)], id="step without its result"),
        pytest.param(
            [_asked(1, "a", "b"), e.ToolFinished(1, 0, content="A"), e.StepCompleted(1, 1)],
            id="step with half of its results",
        ),
        pytest.param([e.ToolFinished(1, 0, content="?")], id="result without a call"),
        pytest.param(
            [_asked(1, "a"), e.ToolFinished(1, 5, content="?")], id="result of another index"
        ),
        pytest.param(
            [_asked(1, "a"), e.ToolFinished(7, 0, content="?")], id="result of another turn"
        ),
        pytest.param(
            [
                _asked(1, "a"),
                e.ToolStarted(1, 0, "look", "d"),
                e.ToolFinished(1, 0, content="A"),
                e.ToolFinished(1, 0, content="again"),
            ],
            id="two results",
        ),
    ],
)
async def test_f002_a_damaged_pairing_heals_on_what_is_sent(bodies: Sequence[e.Body]) -> None:
    """Calls without results and results without calls: every request is valid, the run ends.

    The repair is told as an event, the journal keeps what it held, and a second worker that finds
    the same journal sends the same request.
    """
    store, llm = await _damaged(*bodies), FakeLLM("done")
    before = await store.read("r")
    events = await events_of(AGENT.stream(TASK, context(llm, store)))
    again = await _damaged(*bodies)
    second = FakeLLM("done")

    await AGENT.run(TASK, context(second, again))

    assert "final completed" == told(events)[-1]
    for request in llm.requests:
        assert_valid(request.messages)
    assert before == (await store.read("r"))[: len(before)]
    sent = [msgspec.json.encode(list(model.requests[0].messages)) for model in (llm, second)]
    assert sent[0] == sent[1]


@pytest.mark.parametrize(
    "bodies",
    [
        [e.ToolFinished(1, 0, content="?")],
        [
            _asked(1, "a"),
            e.ToolStarted(1, 0, "look", "d"),
            e.ToolFinished(1, 0, content="A"),
            e.ToolFinished(1, 0, "unknown", "again"),
        ],
    ],
    ids=["no call", "a call that has one"],
)
async def test_f002_a_result_without_a_call_is_told_and_ignored(bodies: Sequence[e.Body]) -> None:
    """Whoever watches learns that something was mended, and where; nothing is run again for it."""
    store = await _damaged(*bodies)

    events = await events_of(AGENT.stream(TASK, context(FakeLLM("x"), store)))

    seq = 2 + len(bodies)
    assert f"repair entry {seq}: a result without a call was ignored" == told(events)[0]
    assert [] == ran


async def test_f004_results_that_are_there_are_kept_in_a_repair() -> None:
    """Only the missing one is filled in, and it says that it is missing."""
    store = await _damaged(
        _asked(1, "a", "b"), e.ToolFinished(1, 1, content="B"), e.StepCompleted(1, 1)
    )
    llm = FakeLLM("done")

    await AGENT.run(TASK, context(llm, store))

    results = [
        (one.content, one.is_error) for one in llm.requests[0].messages if one.role == "tool"
    ]
    assert [("No result of this call was recorded.", True), ("B", False)] == results


# --- F011: cut and broken calls -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (Turn(tool_calls=(ToolCall("c1", "look", '{"what": "a'),)), "not a JSON object"),
        (Turn(tool_calls=(ToolCall("c1", "look", ""),)), "not a JSON object"),
        (Turn(tool_calls=(ToolCall("c1", "look", "[1]"),)), "not a JSON object"),
        (Turn(tool_calls=(ToolCall("c1", "look", '{"what": NaN}'),)), "not a JSON object"),
        (Turn(tool_calls=(call("look", what="a"),), stop="length"), "cut by the output limit"),
        (Turn(tool_calls=(ToolCall("c1", "look", '{"what": "a'),), stop="length"), "cut by"),
        (Turn(tool_calls=(call("look", what="a"),), stop="refusal"), "provider stopped the answer"),
    ],
)
@pytest.mark.parametrize("dies", [False, True])
async def test_f011_a_cut_call_is_answered_and_never_run(turn: Turn, says: str, dies: bool) -> None:
    """Neither live nor by the next worker; what is sent back to the provider is valid JSON."""
    llm = then(turn)
    store = await died_after(e.ModelAnswered, AGENT, llm) if dies else InMemoryCheckpointStore()

    result = await AGENT.run(TASK, context(llm, store))

    [finished] = await bodies_of(store, e.ToolFinished)
    assert ("done", []) == (result.output, ran)
    assert ("error", True) == (finished.outcome, says in finished.content)
    sent = llm.requests[-1].messages
    assert_valid(sent)
    assert isinstance(json.loads(argument_text(sent[1].tool_calls[0])), dict)


# --- F012: names that poison a replay -------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        ToolCall("c1", "lo\x00ok", {}),
        ToolCall("c1", "", {}),
        ToolCall("c1", "look at / that", {}),
        ToolCall("c1", "x" * 300, {}),
        ToolCall("c1", "look", {"k" * 300: 1}),
        ToolCall("c1", "look", {"k\x00": 1}),
        ToolCall("id with spaces\n" * 30, "look", {"what": "a"}),
        ToolCall("\x00", "look", {"what": "a"}),
    ],
)
async def test_f012_hostile_names_leave_under_names_that_a_provider_takes(asked: ToolCall) -> None:
    """The call is answered, what is sent is clean, and the journal keeps what really came."""
    store, llm = InMemoryCheckpointStore(), then(calls(asked))

    result = await AGENT.run(TASK, context(llm, store))

    [answer, _] = await bodies_of(store, e.ModelAnswered)
    [sent] = llm.requests[-1].messages[1].tool_calls
    assert "done" == result.output
    assert (asked.id, asked.name) == (answer.calls[0].id, answer.calls[0].name)
    assert _clean(sent.name)
    assert _clean(sent.id)
    assert isinstance(sent.arguments, dict)
    assert all(len(key) <= 64 and key.isprintable() for key in sent.arguments)
    assert_valid(llm.requests[-1].messages)


def _clean(name: str) -> bool:
    return 0 < len(name) <= 64 and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)


# --- F052: ids that repeat or are missing ---------------------------------------------------------


async def test_f052_an_id_that_comes_back_in_a_later_turn_is_another_call() -> None:
    """Same id, same arguments, five turns later: it runs again, and each has its own result."""
    turns = [calls(call("look", what="same")) for _ in range(5)]
    store, llm = InMemoryCheckpointStore(), then(turns)

    await AGENT.run(TASK, context(llm, store))

    assert ["same"] * 5 == ran
    assert_valid(await messages_of(store))


async def test_f052_missing_ids_are_no_identity() -> None:
    """Two calls without an id in one turn, equal ones at that: both run, both are answered."""
    asked = calls(call("look", call_id="", what="x"), call("look", call_id="", what="x"))
    store, llm = InMemoryCheckpointStore(), then([asked, asked])

    await AGENT.run(TASK, context(llm, store))

    assert ["x"] * 4 == ran
    assert_valid(await messages_of(store))


async def test_f052_an_exact_replay_within_one_turn_runs_once() -> None:
    """A provider that stutters does not double the call; both places are answered."""
    asked = calls(call("look", what="x"), call("look", what="x"), call("look", what="y"))
    store, llm = InMemoryCheckpointStore(), then(asked)

    await AGENT.run(TASK, context(llm, store))

    outcomes = {one.index: one.outcome for one in await bodies_of(store, e.ToolFinished)}
    assert (["x", "y"], {0: "ok", 1: "duplicate", 2: "ok"}) == (ran, outcomes)
    assert_valid(await messages_of(store))


# --- F092, F093: provider content -----------------------------------------------------------------

THINKING = (
    b'[{"type":"thinking","thinking":"hm","signature":"c2ln+/=="},'
    b'{"type":"redacted_thinking","data":"\xc3\xa4"},{"type":"new_kind","z":1,"a":2.50},'
    b'{"type":"tool_use","id":"c1","name":"look","input":{"b":1,"a":2}}]'
)


async def test_f092_provider_content_comes_back_byte_for_byte_after_a_crash() -> None:
    """Signatures, unknown block types, key order and number spelling are untouched."""
    native = Native("fake", msgspec.Raw(THINKING))
    turn = Turn(tool_calls=(call("look", what="a"),), native=native)
    llm = then(turn)
    store = await died_after(e.ToolStarted, AGENT, llm)

    await AGENT.run(TASK, context(llm, store))

    sent = llm.requests[-1].messages[1].native
    assert sent is not None
    assert ("fake", THINKING) == (sent.origin, bytes(sent.content))


async def test_f093_results_in_reverse_order_do_not_touch_the_assistant_message() -> None:
    """The last call ends first; the message is the recorded one, results stand in call order."""
    ended = [asyncio.Event() for _ in range(4)]
    ended[3].set()

    @tool(side_effecting=False)
    async def count(n: int) -> str:
        await ended[n + 1].wait()
        ended[n].set()
        return str(n)

    native = Native("fake", msgspec.Raw(THINKING))
    asked = tuple(call("count", call_id=f"c{n}", n=n) for n in range(3))
    llm = then(Turn(content="Hm.", tool_calls=asked, native=native))
    store = InMemoryCheckpointStore()

    await agent_of(count).run(TASK, context(llm, store))

    finished = [one.index for one in await bodies_of(store, e.ToolFinished)]
    expected = [
        Message("user", TASK),
        Message("assistant", "Hm.", tool_calls=asked, native=native),
        *(Message("tool", str(n), tool_call_id=f"c{n}") for n in range(3)),
    ]
    assert [2, 1, 0] == finished
    assert expected == list(llm.requests[1].messages)


# --- F094: empty texts ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", None, " \n\t"])
async def test_f094_empty_results_and_answers_are_kept_as_they_are(value: str | None) -> None:
    """The journal holds what came; each adapter says in its own words that there was nothing."""

    @tool(side_effecting=False)
    async def give() -> str | None:
        return value

    store, llm = InMemoryCheckpointStore(), then(calls(call("give"), content=""))

    await agent_of(give).run(TASK, context(llm, store))

    sent = llm.requests[1].messages
    assert ["", value or ""] == [sent[1].content, sent[2].content]


async def test_the_system_prompt_is_no_message() -> None:
    """F128: it is sent beside the transcript, once, in every request."""
    llm = then([calls(call("look")), calls(call("look"))])

    await AGENT.run(TASK, context(llm, InMemoryCheckpointStore()))

    assert ["Work."] * 3 == [request.system for request in llm.requests]
    roles = {message.role for request in llm.requests for message in request.messages}
    assert {"user", "assistant", "tool"} == roles
