"""Whole conversations with the strict fake provider: it refuses what the real ones refuse."""

from collections.abc import Iterator

import pytest

from agentkit.core.contracts.model import LLMPort, ModelReply
from agentkit.core.contracts.types import Message, ToolDefinition
from agentkit.models.providers import frontiers
from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider
from tests.models.kit import answered, ask, failure, request, results, user

pytestmark = pytest.mark.parametrize("name", ["anthropic", "openai"])

ADD = ToolDefinition(
    name="add",
    description="Add two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
CALLS = [CallSpec("add", {"a": 1, "b": 2}), CallSpec("add", {"b": 4, "a": 3})]


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    """A provider whose script the test sets."""
    with StrictProvider([]) as strict:
        yield strict


def _port(name: str, provider: StrictProvider, **settings: object) -> LLMPort:
    key = provider.api_key
    if name == "anthropic":
        return frontiers.claude(api_key=key, base_url=provider.anthropic_url, **settings)  # type: ignore[arg-type] # settings of either builder
    return frontiers.openai(api_key=key, base_url=provider.openai_url, **settings)  # type: ignore[arg-type] # settings of either builder


async def _converse(llm: LLMPort, turns: int, *, stream: bool) -> list[ModelReply]:
    """So many turns, every call answered; ids of calls are made unique as a transcript does."""
    messages: list[Message] = [user("What is 1 + 2, and 3 + 4?")]
    replies = []
    for _ in range(turns):
        what = request(*messages, stream=stream, system="Be brief.", tools=[ADD])
        reply, deltas = await ask(llm, what)
        assert deltas == (reply.text if stream else "")
        replies.append(reply)
        messages += [answered(reply), *results(reply)]
        if not reply.calls:
            messages.append(user("And now?"))
    return replies


@pytest.mark.parametrize("stream", [True, False])
async def test_parallel_calls_and_their_results(
    name: str, stream: bool, provider: StrictProvider
) -> None:
    """Two calls in one turn, their results in one request, twice, then text, then on."""
    provider.use_script(
        [
            Answer(text="Let me see.", tool_calls=CALLS),
            Answer(tool_calls=CALLS),
            Answer(text="Three and seven."),
            Answer(text="Still."),
        ]
    )

    replies = await _converse(_port(name, provider), 4, stream=stream)

    assert [] == provider.refusals
    assert ["tool_use", "tool_use", "end", "end"] == [reply.stop for reply in replies]
    assert ['{"a":1,"b":2}', '{"b":4,"a":3}'] == [
        call.arguments.replace(" ", "") for call in replies[0].calls
    ]


@pytest.mark.parametrize("stream", [True, False])
async def test_f092_thinking_goes_back_as_it_came(
    name: str, stream: bool, provider: StrictProvider
) -> None:
    """Sealed and redacted thinking survive an open tool loop (of Messages; the other has none)."""
    provider.use_script(
        [
            Answer(thinking="Add them.", redacted_thinking="secret", tool_calls=CALLS),
            Answer(thinking="", text="Once more.", tool_calls=CALLS[:1]),
            Answer(text="", thinking="Hm.", tool_calls=CALLS[:1]),
            Answer(text="Three and seven."),
        ]
    )

    replies = await _converse(_port(name, provider), 4, stream=stream)

    assert [] == provider.refusals
    assert (name == "anthropic") == (b'"signature"' in _native_bytes(replies[0]))


@pytest.mark.parametrize("stream", [True, False])
async def test_f094_empty_text_heals(name: str, stream: bool, provider: StrictProvider) -> None:
    """An empty text block beside calls, an empty answer, an empty result: none is sent back."""
    provider.use_script(
        [
            Answer(text="", tool_calls=CALLS[:1]),
            Answer(text=" \n", tool_calls=CALLS[:1]),
            Answer(text=""),
            Answer(text="Done."),
        ]
    )
    llm = _port(name, provider)
    messages: list[Message] = [user("Go")]
    texts = []
    for _ in range(4):
        reply, _ = await ask(llm, request(*messages, stream=stream, tools=[ADD]))
        texts.append(reply.text)
        messages.append(answered(reply))
        messages += [
            Message(role="tool", content=" ", tool_call_id=call.id, is_error=True)
            for call in reply.calls
        ]
        if not reply.calls:
            messages.append(user(""))

    assert "Done." == texts[-1]
    assert [] == provider.refusals


@pytest.mark.parametrize("stream", [True, False])
async def test_f011_half_arguments_are_kept_as_text(
    name: str, stream: bool, provider: StrictProvider
) -> None:
    """Arguments cut by the output limit come as the text that came, and go back as `{}`."""
    half = '{"a": 1, "b'
    reason = "max_tokens" if name == "anthropic" else "length"
    cut = Answer(tool_calls=[CallSpec("add", half)], stop_reason=reason)
    provider.use_script([cut, Answer(text="Sorry.")])

    replies = await _converse(_port(name, provider), 2, stream=stream)

    assert "length" == replies[0].stop
    if stream or name == "openai":
        assert half == replies[0].calls[0].arguments
    assert [] == provider.refusals


@pytest.mark.parametrize(
    ("fault", "kind", "paid"),
    [
        (Fault.rate_limit(retry_after=2), "rate_limited", False),
        (Fault.spend_limit(), "quota", False),
        (Fault.overloaded(), "overloaded", False),
        (Fault.error(500), "server", True),
        (Fault.error(400), "invalid_request", False),
        (Fault.error(401), "auth", False),
        (Fault.error(404), "not_found", False),
        (Fault.html(), "server", True),
        (Fault.cut_before_headers(), "network", True),
        (Fault.stall(), "timeout", True),
        (Fault.stall_stream(), "timeout", True),
        (Fault.cut_stream(), "truncated", True),
        (Fault.end_stream(), "truncated", True),
        (Fault.stream_error(), None, True),
        (Fault.endless_line(), None, True),
        (Fault.no_stop_reason(), "truncated", True),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else None,
)
async def test_each_fault_is_mapped(
    name: str, fault: Fault, kind: str | None, paid: bool, provider: StrictProvider
) -> None:
    """Every way in which the provider fails is a `ModelError`, and the next attempt succeeds."""
    provider.use_script([Answer(text="A longer answer, in several pieces.")])
    provider.fail_next(fault)
    llm = _port(name, provider, stall_seconds=0.5)

    error = await failure(llm, request(stream=True, timeout_seconds=3))
    reply, _ = await ask(llm, request(stream=True))

    if kind is not None:
        expected = "server" if (name, fault.status) == ("openai", 529) else kind
        assert expected == error.kind
    assert paid == error.may_be_paid
    assert "A longer answer, in several pieces." == reply.text


async def test_f134_one_attempt_is_one_request(name: str, provider: StrictProvider) -> None:
    """Nobody below the runtime retries: one attempt, one request, and the wait is handed on."""
    provider.use_script([Answer(text="Hi.")])
    provider.always(Fault.rate_limit(retry_after_ms=1500, should_retry=True))
    llm = _port(name, provider)

    errors = [await failure(llm, request(stream=stream)) for stream in (True, False)]

    assert 2 == len(provider.calls)
    assert [(1.5, True)] * 2 == [(e.retry_after_seconds, e.should_retry) for e in errors]


def _native_bytes(reply: ModelReply) -> bytes:
    assert reply.native is not None
    return bytes(reply.native.content)
