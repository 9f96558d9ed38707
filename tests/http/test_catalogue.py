"""F002, F011, F012, F052, F092 to F094 with both SDKs: what a real provider would refuse is not
sent, by nobody who carries the run on.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import Raw, structs

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.types import CallRecord, Native
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.crash import Death, ForkServer
from agentkit.testing.invariants import report
from agentkit.testing.provider import Answer, Call, CallSpec, StrictProvider
from agentkit.tools import tool
from tests.agents.kit import TASK, agent_of, dead_worker, entries_of
from tests.agents.kit import context as plain_context
from tests.http.campaign import HttpCampaign, HttpOrdeal
from tests.http.kit import APIS, Api, adapter, context, messages_of, results_in, url_of

both = pytest.mark.parametrize("api", APIS)
any_stream = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

DEATHS: tuple[Death, ...] = ("append:after#2", "tool:before", "tool:after#2", None)
"""One worker dies with the first answer recorded, one at a tool's door, one behind a tool."""


def _call(name: str, item: str, label: str | None = None) -> CallSpec:
    return CallSpec(name, {"item": item}, label)


class Case(NamedTuple):
    """What the model says before it says that it is done, and what it must be told: the results of
    all its calls in their order, each by how it begins.
    """

    turns: Sequence[Answer]
    results: Sequence[str]


CASES = {
    "f052-ids-repeat-over-turns": Case(
        [
            Answer(tool_calls=[_call("lookup", "a", "c1"), _call("lookup", "b", "c2")]),
            Answer(tool_calls=[_call("lookup", "a", "c1")]),
            Answer(tool_calls=[_call("upsert", "c", "c1"), _call("lookup", "d", "c1")]),
        ],
        ["value of a", "value of b", "value of a", "stored c", "value of d"],
    ),
    "f052-ids-are-empty": Case(
        [
            Answer(tool_calls=[_call("lookup", "a", ""), _call("lookup", "b", "")]),
            Answer(tool_calls=[_call("lookup", "b", ""), _call("upsert", "c", "")]),
        ],
        ["value of a", "value of b", "value of b", "stored c"],
    ),
    "f052-an-exact-replay-within-a-turn": Case(
        [Answer(tool_calls=[_call("upsert", "a", "c1"), _call("upsert", "a", "c1")])],
        ["stored a", "This call repeats"],
    ),
    "f011-half-arguments-at-the-limit": Case(
        [
            Answer(tool_calls=[CallSpec("upsert", '{"item": "a')], stop_reason="max_tokens"),
            Answer(tool_calls=[_call("upsert", "b")]),
        ],
        ["This call was not run", "stored b"],
    ),
    "f011-whole-arguments-at-the-limit": Case(
        [Answer(tool_calls=[_call("upsert", "a")], stop_reason="max_tokens")],
        ["This call was not run"],
    ),
    "f011-arguments-that-are-no-object": Case(
        [Answer(tool_calls=[CallSpec("upsert", "{}")])],
        ["upsert"],
    ),
    "f012-names-that-are-none": Case(
        [
            Answer(tool_calls=[_call("look\x00\x1b[2Jup", "a"), _call("", "b")]),
            Answer(tool_calls=[_call("x" * 300, "c"), _call("lookup", "d")]),
        ],
        ["There is no tool", "There is no tool", "There is no tool", "value of d"],
    ),
    "f012-argument-names-that-are-none": Case(
        [
            Answer(tool_calls=[CallSpec("lookup", {"item": "a", "k" * 300: 1})]),
            Answer(tool_calls=[CallSpec("lookup", {"item": "a", "k\x00\n": 1})]),
        ],
        ["lookup", "lookup"],
    ),
    "f094-tools-that-return-nothing": Case(
        [
            Answer(tool_calls=[_call("quiet", "a"), _call("nothing", "b"), _call("blank", "c")]),
            Answer(tool_calls=[_call("quiet", "d")]),
        ],
        ["(no output)"] * 4,
    ),
    "f094-empty-text-beside-a-call": Case(
        [
            Answer(text="", tool_calls=[_call("lookup", "a")]),
            Answer(text=" \n", tool_calls=[_call("lookup", "b")]),
        ],
        ["value of a", "value of b"],
    ),
    "f093-results-in-reverse": Case(
        [
            Answer(tool_calls=[_call("first", "a"), _call("lookup", "b"), _call("last", "c")]),
            Answer(text="More.", tool_calls=[_call("first", "d"), _call("last", "e")]),
        ],
        ["first a", "value of b", "last c", "first d", "last e"],
    ),
}


def _campaign(
    server: ForkServer, path: Path, api: Api, turns: Sequence[Answer], *, stream: bool = True
) -> HttpCampaign:
    script = [*turns, Answer(text="That was all.")]
    return HttpCampaign(
        server,
        path,
        api=api,
        stream=stream,
        script=script,
        output="That was all.",
        odd=True,
    )


def _carried_through(campaign: HttpCampaign, deaths: Sequence[Death]) -> HttpOrdeal:
    with campaign.ordeal() as ordeal:
        for death in deaths:
            ordeal.worker(death)
        ordeal.finish()
        ordeal.judge()
    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    return ordeal


WHOLE = ("f011", "f052-ids-are-empty", "f094-empty")
"""Cases whose answers are put together in another way where they do not come as a stream."""


@both
@pytest.mark.parametrize(
    ("name", "stream"),
    [*((name, True) for name in CASES), *((n, False) for n in CASES if n.startswith(WHOLE))],
)
def test_whatever_a_model_says_can_be_sent_back(
    server: ForkServer, tmp_path: Path, api: Api, name: str, *, stream: bool
) -> None:
    """The provider takes every request, each call has its own result at its place, and a run whose
    workers were killed sends the very requests of one whose worker lived.
    """
    campaign = _campaign(server, tmp_path, api, CASES[name].turns, stream=stream)
    lived = _carried_through(campaign, [])
    died = _carried_through(campaign, DEATHS)

    told = list(results_in(messages_of(lived.calls[-1])))
    labels = [label for label, _ in told]
    texts = [text for _, text in told]
    assert len(set(labels)) == len(labels)
    assert [(t, w) for t, w in zip(texts, CASES[name].results, strict=True) if w not in t] == []
    assert _by_turn(lived.calls) == _by_turn(died.calls)
    assert campaign.kills >= 1


def _by_turn(calls: Sequence[Call]) -> set[tuple[int, str]]:
    """Which requests were made, whoever made them and however often."""
    return {(call.turn, call.digest) for call in calls}


def test_f093_outcomes_that_come_in_reverse_are_recorded_as_they_come(
    server: ForkServer, tmp_path: Path
) -> None:
    """The case above is what it says: the last call's outcome stands before the first one's."""
    turns = CASES["f093-results-in-reverse"].turns
    ordeal = _carried_through(_campaign(server, tmp_path, "anthropic", turns), [])
    entries = [entry.body for entry, _ in _decoded(ordeal)]
    ended = [(b.turn, b.index) for b in entries if isinstance(b, e.ToolFinished)]

    assert ended.index((1, 2)) < ended.index((1, 0))
    assert ended.index((2, 1)) < ended.index((2, 0))


def _body(call: Call) -> dict[str, object]:
    assert call.request is not None
    return call.request


def _decoded(ordeal: HttpOrdeal) -> Iterator[tuple[e.Entry, bytes]]:
    yield from decode_rows(ordeal.reads[-1], after=0, before=b"", run_id="r1")


THOUGHTS = [
    Answer(
        thinking="The first thought, ünïcode and \u2028 all.",
        redacted_thinking="hidden",
        text="Let me look.",
        tool_calls=[_call("lookup", "a"), _call("first", "b"), _call("last", "c")],
    ),
    Answer(thinking="", redacted_thinking="more", tool_calls=[_call("lookup", "d")]),
    Answer(text="", thinking="Between.", tool_calls=[_call("lookup", "e", "again")]),
    Answer(redacted_thinking="alone", tool_calls=[_call("lookup", "f", "again")]),
]


@any_stream
@pytest.mark.parametrize(
    "death", ["tool:before#2", "tool:after#2", "append:after#3", "tool:before#5"]
)
def test_f092_thinking_goes_back_byte_for_byte_after_a_kill_in_a_tool(
    server: ForkServer, tmp_path: Path, death: str, *, stream: bool
) -> None:
    """Thinking with its signature and hidden thinking are in each later request as the journal has
    them, and the provider, which verifies the seals, takes them.
    """
    campaign = _campaign(server, tmp_path, "anthropic", THOUGHTS, stream=stream)
    ordeal = _carried_through(campaign, [death])
    answers = [b.body for b, _ in _decoded(ordeal) if isinstance(b.body, e.ModelAnswered)]
    recorded = [bytes(a.native.content).decode() for a in answers if a.native is not None]

    assert 1 == campaign.kills
    assert 5 == len(recorded)
    for call in ordeal.calls:
        said = [m["content"] for m in messages_of(call) if m["role"] == "assistant"]
        for sent, kept in zip(said, recorded, strict=False):
            assert _sealed(json.dumps(json.loads(kept))) == _sealed(json.dumps(sent))
    assert 6 == len(_sealed(json.dumps(_body(ordeal.calls[-1]))))


def _sealed(text: str) -> list[str]:
    """The thinking blocks in a JSON text, each as it is written there."""
    found: list[str] = []

    def seen(pairs: list[tuple[str, object]]) -> object:
        block = dict(pairs)
        if block.get("type") in {"thinking", "redacted_thinking"}:
            found.append(json.dumps(block))
        return block

    json.loads(text, object_pairs_hook=seen)
    return found


@both
@any_stream
def test_f093_settings_changed_between_kill_and_resume_change_nothing_that_is_sent(
    server: ForkServer, tmp_path: Path, api: Api, *, stream: bool
) -> None:
    """The second worker has another prompt and fewer tools. What it sends is the recorded prompt
    and tools, and the messages of the first one: under a thinking block nothing may change.
    """
    campaign = _campaign(server, tmp_path, api, THOUGHTS, stream=stream)
    with campaign.ordeal() as ordeal:
        ordeal.worker("tool:after#4")
        before = ordeal.calls[-1]
        campaign.prompt = "Work in quite another way."
        ordeal.worker("append:after#3")
        ordeal.finish()
        ordeal.judge()
        after = ordeal.calls[-1]

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    assert 2 == campaign.kills
    assert before.turn < after.turn
    for field in ("system", "tools"):
        assert _body(before).get(field) == _body(after).get(field)
    shared = messages_of(before)
    assert shared == messages_of(after)[: len(shared)]
    assert b"another way" not in json.dumps([c.request for c in ordeal.calls]).encode()


@pytest.mark.parametrize(
    ("began", "went_on"), [APIS, APIS[::-1]], ids=["to-openai", "to-anthropic"]
)
def test_what_one_provider_wrote_is_not_sent_to_another(
    server: ForkServer, tmp_path: Path, began: Api, went_on: Api
) -> None:
    """A run is carried on with the other SDK: its text and calls go there, and no thinking,
    signature or field of the first provider does.

    The second worker asks for no thinking: in a tool loop that began without, Messages would want
    the thoughts that its calls were made with.
    """
    campaign = _campaign(server, tmp_path, began, THOUGHTS)
    with campaign.ordeal() as ordeal:
        ordeal.worker("tool:before#4")
        campaign.api, campaign.thinking = went_on, False
        ordeal.finish()
        ordeal.judge()

    assert not campaign.violations, report(campaign.violations)
    assert [] == campaign.refusals
    assert 1 == campaign.kills
    first = next(call for call in ordeal.calls if call.turn == 2)
    assert ("chat" in first.path) == (went_on == "openai")
    said = json.dumps([m for m in messages_of(first) if m["role"] == "assistant"])
    assert [] == [word for word in ("signature", "thinking", "annotations") if word in said]
    assert "Let me look." in said


@any_stream
def test_a_paused_answer_goes_back_as_it_came_after_a_kill(
    server: ForkServer, tmp_path: Path, *, stream: bool
) -> None:
    """The provider paused in the middle of its own tool; the next worker sends just that back."""
    search: dict[str, object] = {"type": "server_tool_use", "id": "srvtoolu_1"}
    search |= {"name": "web_search", "input": {"query": "x"}}
    paused = Answer(
        text="Let me search.", thinking="Hm.", blocks=[search], stop_reason="pause_turn"
    )
    campaign = _campaign(server, tmp_path, "anthropic", [paused], stream=stream)
    ordeal = _carried_through(campaign, ["append:after#2"])

    last = messages_of(ordeal.calls[-1])[-1]
    assert "assistant" == last["role"]
    assert ["thinking", "text", "server_tool_use"] == [b["type"] for b in _blocks(last)]
    assert search == _blocks(last)[-1]
    assert 1 == campaign.kills


def _blocks(message: dict[str, object]) -> list[dict[str, object]]:
    content = message["content"]
    assert isinstance(content, list)
    return content


@tool(side_effecting=False)
async def look(what: str = "") -> str:
    """Look."""
    return f"saw {what}"


def _asked(turn: int, *labels: str) -> e.ModelAnswered:
    calls = tuple(CallRecord(label, "look", f'{{"what":"{label}"}}') for label in labels)
    return e.ModelAnswered(turn, calls=calls, stop="tool_use")


_CONTENT = Native(
    "anthropic",
    Raw(b'[{"type":"text","text":""},{"type":"tool_use","id":"z","name":"look","input":{}}]'),
)

DAMAGED: dict[str, list[e.Body]] = {
    "a call at the end": [_asked(1, "a")],
    "a call in the middle": [_asked(1, "a"), _asked(2, "b"), e.ToolFinished(2, 0, content="B")],
    "one of two calls": [
        _asked(1, "a", "b"),
        e.ToolFinished(1, 1, content="B"),
        _asked(2, "c"),
    ],
    "a step without its result": [_asked(1, "a"), e.StepCompleted(1, 1)],
    "a result without its call": [e.ToolFinished(1, 0, content="?")],
    "a result under another index": [_asked(1, "a"), e.ToolFinished(1, 5, content="?")],
    "a result under another turn": [_asked(1, "a"), e.ToolFinished(7, 0, content="?")],
    "calls that are not those of the content": [
        structs.replace(_asked(1, "a", "b"), native=_CONTENT),
        e.ToolFinished(1, 0, content="A"),
    ],
}


@both
@pytest.mark.parametrize("name", DAMAGED)
async def test_f002_damaged_pairs_are_mended_before_they_are_sent(api: Api, name: str) -> None:
    """A journal that an older program damaged is carried on by both SDKs without a refusal; a
    second load sends the same request.
    """
    agent = agent_of(look)
    recorded = InMemoryCheckpointStore()
    await agent.run(TASK, plain_context(FakeLLM("x"), recorded, run_id="r1"))
    start = (await entries_of(recorded, "r1"))[:2]
    later = [e.Entry(0, "", 0, "agent:worker", 0, body) for body in DAMAGED[name]]
    with StrictProvider([Answer(text="Mended.")] * 9) as provider:
        llm = adapter(api, url_of(api, provider))
        results = [
            await agent.run(TASK, context(llm, await dead_worker([*start, *later], run_id="r1")))
            for _ in range(2)
        ]
        digests = [call.digest for call in provider.calls]

    assert ["Mended."] * 2 == [result.output for result in results]
    assert [] == provider.refusals
    half = len(digests) // 2
    assert digests[:half] == digests[half:]
