"""F073, F081 to F091: what a tool gives is what the model sees, live and resumed alike."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import socket
import typing
import uuid
from collections.abc import AsyncIterator

import msgspec
import pydantic
import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidDecision, InvalidSpec
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, CallRecord, Decision, ToolCall
from agentkit.core.testing import FakeLLM, Turn
from agentkit.models.providers._transcript import argument_text
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, open_store
from agentkit.state.journal.codec import decode_rows, encode_entry
from agentkit.tools import Tool, ToolContext, tool
from tests.agents.kit import (
    RUN,
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
    messages_of,
    then,
)


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> AsyncIterator[JournalPort]:
    """One store of each kind."""
    if request.param == "memory":
        yield InMemoryCheckpointStore()
        return
    opened = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    yield opened
    await opened.aclose()


def _giving(value: object) -> Tool:
    @tool(side_effecting=False)
    async def give() -> object:
        return value

    return give


async def _live_and_resumed(value: object, store: JournalPort) -> tuple[str, str, bool]:
    """What the model was shown of the tool's result by the worker that ran it, and by the next."""
    agent, llm = agent_of(_giving(value)), then(calls(call("give")))
    stream = agent.stream(TASK, context(llm, store))
    async for event in stream:
        if event.type == "step":
            break
    await stream.aclose()
    await agent.run(TASK, context(llm, store))
    resumed = llm.requests[-1].messages[-1]

    live = then(calls(call("give")))
    await agent.run(TASK, context(live, store, run_id="live"))
    shown = live.requests[-1].messages[-1]
    assert_valid(resumed_messages := list(llm.requests[-1].messages))
    assert resumed_messages == list(live.requests[-1].messages)
    msgspec.json.encode(resumed_messages)
    return shown.content, resumed.content, resumed.is_error


class Colour(enum.Enum):
    RED = "red"


class Box(pydantic.BaseModel):
    of: list[int]


@dataclasses.dataclass
class Point:
    x: int
    y: float


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024 - untyped ones are what is met


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("a\x00b", "a\x00b", id="f081 NUL"),
        pytest.param("a\\u0000b", "a\\u0000b", id="f081 six characters"),
        pytest.param("\udc97", "\ufffd", id="f082 lone surrogate"),
        pytest.param("\ud83e\udd91", "🦑", id="f082 halves that stand together"),
        pytest.param({"k": "\udc97"}, '{"k":{"$str":"\\\\udc97"}}', id="f082 nested"),
        pytest.param(
            {"v": math.nan, "w": math.inf},
            '{"v":{"$float":"nan"},"w":{"$float":"inf"}}',
            id="f083 NaN",
        ),
        pytest.param(2**64, "18446744073709551616", id="f084 2**64"),
        pytest.param(-(2**63) - 1, "-9223372036854775809", id="f084 below int64"),
        pytest.param([2**53 + 1], "[9007199254740993]", id="f084 2**53+1"),
        pytest.param(Colour.RED, "red", id="f086 Enum"),
        pytest.param(Box(of=[1]), '{"of":[1]}', id="f086 pydantic"),
        pytest.param(Point(1, 2.0), '{"x":1,"y":2.0}', id="f086 dataclass"),
        pytest.param(Pair(1, "b"), '{"left":1,"right":"b"}', id="f086 namedtuple"),
        pytest.param({3, 1, 2}, "[1,2,3]", id="f086 set"),
        pytest.param(collections.defaultdict(int, a=1), '{"a":1}', id="f086 defaultdict"),
        pytest.param(decimal.Decimal("1.10"), "1.10", id="f086 Decimal"),
        pytest.param(uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005", id="f086 UUID"),
        pytest.param(pathlib.PurePosixPath("/a"), "/a", id="f086 Path"),
        pytest.param(
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00+00:00", id="f086 datetime"
        ),
        pytest.param(b"\xff\xfe", '{"$bytes":"//4="}', id="f087 bytes"),
        pytest.param(
            {"image": b"\x89PNG"}, '{"image":{"$bytes":"iVBORw=="}}', id="f087 nested bytes"
        ),
        pytest.param(None, "", id="f094 None"),
        pytest.param("", "", id="f094 empty"),
        pytest.param(False, "false", id="False"),
        pytest.param({"b": 1, "a": {"d": 1, "c": 2}}, '{"b":1,"a":{"d":1,"c":2}}', id="key order"),
        pytest.param("\u2028\x85\x1b[31m", "\u2028\x85\x1b[31m", id="f081 controls"),
    ],
)
async def test_f081_f087_a_resumed_run_sees_what_the_live_one_saw(
    value: object, shown: str, store: JournalPort
) -> None:
    """The result through a whole run: tool, journal, next worker, request; all the same text."""
    live, resumed, is_error = await _live_and_resumed(value, store)

    assert (shown, shown, False) == (live, resumed, is_error)
    live.encode()  # what leaves is valid Unicode


async def test_f081_the_two_spellings_of_nul_stay_different(store: JournalPort) -> None:
    """One character is not six."""
    one = await _live_and_resumed("a\x00b", store)
    await store.delete_run(RUN)
    await store.delete_run("live")
    six = await _live_and_resumed("a\\u0000b", store)

    assert one != six


async def test_f083_what_leaves_is_strict_json(store: JournalPort) -> None:
    """NaN has a tagged form; no bare NaN reaches a provider."""
    live, _, _ = await _live_and_resumed({"v": math.nan}, store)

    assert {"v": {"$float": "nan"}} == json.loads(live, parse_constant=pytest.fail)


class Cyclic(dict[str, object]):
    def __init__(self) -> None:
        super().__init__()
        self["me"] = self


@pytest.mark.parametrize(
    ("value", "names"),
    [
        pytest.param(socket, "module", id="module"),
        pytest.param((one for one in "x"), "generator", id="generator"),
        pytest.param(Cyclic(), "contains itself", id="cycle"),
        pytest.param({1: "a", "1": "b"}, "two keys", id="f085 colliding keys"),
        pytest.param({(1, 2): "d"}, "key of type tuple", id="f085 tuple key"),
        pytest.param({"a": {"b": object()}}, "$.a.b", id="path"),
    ],
)
async def test_f073_a_result_that_cannot_be_kept_is_an_error_and_the_effect_counts(
    value: object, names: str
) -> None:
    """F085 too: tool and type or path are named, the model is told, nothing is run again."""
    ran = []

    @tool(side_effecting=True)
    async def act() -> object:
        ran.append(1)
        return value

    llm = then(calls(call("act")))
    store = InMemoryCheckpointStore()

    result = await agent_of(act).run(TASK, context(llm, store))
    await agent_of(act).run(TASK, context(llm, await dead_worker((await entries_of(store))[:-1])))

    [finished] = await bodies_of(store, e.ToolFinished)
    assert ("done", [1], "error") == (result.output, ran, finished.outcome)
    assert "act" in finished.content
    assert names in finished.content


async def test_f085_keys_become_text_by_rule() -> None:
    """What does not collide is kept under its JSON name, live as resumed."""
    value = {2: "a", None: "c", True: "e"}

    live, resumed, _ = await _live_and_resumed(value, InMemoryCheckpointStore())

    assert '{"2":"a","null":"c","true":"e"}' == live == resumed


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": 2**64},
        {"x": -(2**63) - 1},
        {"x": 2**53 + 1},
        {"x": "a\x00b"},
        {"x": "a\\u0000b"},
        {"x": 1e300},
        {"x": {"b": 1, "a": [None, True, 1.0]}},
    ],
)
async def test_f084_arguments_are_the_same_for_the_worker_that_runs_the_call_again(
    arguments: dict[str, JSON],
) -> None:
    """The second worker's tool gets what the first one's got, to the digit."""
    seen = []

    @tool(side_effecting=False)
    async def take(x: object) -> str:
        seen.append(x)
        return "ok"

    llm = then(calls(ToolCall("c1", "take", arguments)))
    store = await died_after(e.ToolStarted, agent_of(take), llm)
    await agent_of(take).run(TASK, context(llm, store))

    assert [arguments["x"], arguments["x"]] == seen
    assert [type(arguments["x"])] * 2 == [type(one) for one in seen]


async def test_f082_half_an_emoji_from_the_model_is_mended_once() -> None:
    """Text, call and arguments with lone surrogates neither stop the run nor stay in it."""
    seen = []

    @tool(side_effecting=False)
    async def echo(x: str) -> str:
        seen.append(x)
        return x

    bad = '{"x": "half \\ud83e"}'
    turn = Turn(content="a \ud83e b", tool_calls=(ToolCall("c\ud83e", "echo", bad),))
    unknown = Turn(tool_calls=(ToolCall("c2", "ec\ud83eho", {"x": "\ud83e"}),))
    store, llm = InMemoryCheckpointStore(), then([turn, unknown])

    result = await agent_of(echo).run(TASK, context(llm, store))

    assert "done" == result.output
    assert_valid(await messages_of(store))
    for message in (message for request in llm.requests for message in request.messages):
        texts = [message.content, *(f"{one.id} {one.name}" for one in message.tool_calls)]
        assert [text.encode().decode() for text in texts] == texts
        for one in message.tool_calls:
            json.loads(argument_text(one))


@pytest.mark.parametrize("text", ["half \ud83e", "\udc97"])
async def test_f082_what_people_write_is_refused_where_it_is_no_text(text: str) -> None:
    """A task or a prompt with half a character is refused before anything is written."""
    store = InMemoryCheckpointStore()

    with pytest.raises(InvalidSpec, match="lone surrogates"):
        await agent_of().run(text, context(FakeLLM("x"), store))

    assert await store.head(RUN) is None


async def test_f082_a_decision_with_half_a_character_is_refused() -> None:
    """Its value may hold anything, its reason and actor are texts."""

    @tool(side_effecting=True)
    async def send() -> str:
        return "sent"

    llm = then(calls(call("send")))
    store = await died_after(e.ToolStarted, agent_of(send), llm)
    result = await agent_of(send).run(TASK, context(llm, store))
    assert result.suspended is not None
    [question] = result.suspended.questions

    decision = Decision("skip", reason="no \ud83e")
    with pytest.raises(InvalidDecision, match="lone surrogates"):
        await agent_of(send).resume(RUN, {question.id: decision}, context(llm, store))
    value = Decision("done", value="half \ud83e")
    done = await agent_of(send).resume(RUN, {question.id: value}, context(llm, store))

    assert "done" == done.output
    assert "half \ufffd" == (await messages_of(store))[-2].content


async def test_f089_error_texts_of_all_kinds_are_read_back() -> None:
    """Wrong arguments, unknown tools, exceptions with odd texts: the resumed run sees the same."""

    @tool(side_effecting=False)
    async def take(n: int, ctx: ToolContext) -> str:
        raise ValueError("odd \x00 \udc97 text")

    asked = calls(
        ToolCall("c1", "take", {"n": "five" * 500}),
        ToolCall("c2", "take", {"n": 1, "m": "\ud83e"}),
        ToolCall("c3", "nobody", {}),
        ToolCall("c4", "take", "not json"),
        ToolCall("c5", "take", {"n": 1}),
        ToolCall("c6", "take", {}),
    )
    llm = then(asked)
    store = await died_after(e.StepCompleted, agent_of(take), llm)
    live = [message.content for message in llm.requests[1].messages]

    result = await agent_of(take).run(TASK, context(llm, store))

    assert "done" == result.output
    assert live == [message.content for message in llm.requests[2].messages]
    assert all(message.is_error for message in llm.requests[2].messages[2:])
    for one in llm.requests[2].messages[1].tool_calls:
        json.loads(argument_text(one))
    assert "odd \x00 \ufffd text" in live[6]


ENTRIES: list[e.Body] = [
    e.RunSubmitted("t", "a", "me", "manual"),
    e.RunStarted("t", "a", "m", "s", (), "f", "n", "sc", "me", "p"),
    e.LeaseTaken("o", "takeover", 3),
    e.ModelAnswered(3, "text", (CallRecord("i", "n", "{}"),), "tool_use", response_id="r"),
    e.ModelFailed(1, 2, "server", "m\x00", 500, 17, unknown=True),
    e.ToolStarted(1, 0, "n", "d", "k", 2, "me"),
    e.QuestionAsked(1, 0, "in_doubt", "t", "{}", "d", ("skip",), "p"),
    e.ToolFinished(1, 0, "unknown", "c\u2028", 2, "me"),
    e.StepCompleted(2, 1, "suspended"),
    e.CheckpointSaved(1, "done", "null", 4, 1.5),
    e.ValueRecorded(1, 0, "n", '{"$float":"nan"}'),
    e.Decided("q1", "done", "d", "false", "me", "why"),
    e.OutcomeReported(1, 0, 2, "ok", "c", "me", "why"),
    e.Forked("p", 2, "n", (e.ResultEdit(1, 0, "c"),), "m", "me"),
    e.Parked("auth", "m", "max_iterations"),
    e.Unparked("me", "why"),
    e.WaitStarted(1, 0, "n", "event", 17, "paid", "skip"),
    e.WaitEnded(1, 0, "n", "deadline"),
    e.EventReceived("paid", '{"a":1}', "e1", "me"),
    e.MessageAdded("text", "me", "m1"),
    e.CancelAsked("me", "why"),
    e.PauseAsked("me", "why"),
    e.Finished("out", "length", partial=True),
    e.Failed("m"),
    e.Cancelled("me", "why"),
]


def test_f089_every_kind_of_entry_is_read_as_it_was_written() -> None:
    """Load of dump is the identity for each kind, and no kind is missing here."""
    read = []
    for body in ENTRIES:
        row = encode_entry(e.Entry(1, "id", 7, "lane", 9, body), before=b"", run_id=RUN)
        [(entry, _)] = decode_rows([row], after=0, before=b"", run_id=RUN)
        read.append(entry.body)

    assert ENTRIES == read
    assert set(typing.get_args(e.Body)) == {type(one) for one in ENTRIES}


async def test_f091_a_last_outcome_with_broken_text_does_not_spoil_the_run(
    store: JournalPort,
) -> None:
    """Finished is finished, and the outcome is stored."""
    agent, llm = agent_of(_giving("end \udcff")), then(calls(call("give")), "fine")

    result = await agent.run(TASK, context(llm, store))

    assert ("fine", "completed") == (result.output, result.stop_reason)
    [listed] = (await store.list_runs())[0]
    assert ("done", "end \ufffd") == (listed.summary.status, (await messages_of(store))[2].content)
