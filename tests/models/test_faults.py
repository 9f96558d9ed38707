"""Whatever a server or the way to it does wrong becomes a `ModelError`, never an answer."""

import asyncio
from pathlib import Path

import pytest

from agentkit.core.contracts.model import TextDelta
from agentkit.models.providers import _exchange
from tests.models.kit import (
    KEY,
    PROVIDERS,
    answer_of,
    ask,
    events_of,
    failure,
    port,
    request,
)
from tests.models.raw_server import (
    CLOSE,
    END,
    ENDLESS,
    HOLD,
    Steps,
    chunk,
    event,
    head,
    serving,
    whole,
)

pytestmark = pytest.mark.parametrize("name", PROVIDERS)


def _first(name: str, count: int) -> list[bytes]:
    """The head and the first events of a stream."""
    return [head(), *(chunk(event(data)) for data in events_of(name)[:count])]


def _upto_reason(name: str) -> list[bytes]:
    """The stream up to the event with the stop reason."""
    return _first(name, {"anthropic": 7, "openai": 4}[name])


async def test_a_stream_is_read_to_its_reply(name: str) -> None:
    """The faults below are faults: the same stream in full is an answer."""
    async with serving([*_first(name, 99), END]) as server:
        reply, deltas = await ask(port(name, server.url), request(stream=True))

    assert "Hi there" == reply.text == deltas
    assert "end" == reply.stop
    assert (5, 7) == (reply.usage.input_tokens, reply.usage.output_tokens)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("orderly", [True, False], ids=["ended", "cut"])
async def test_a_stream_without_its_end_is_truncated(name: str, count: int, orderly: bool) -> None:
    """A stream that stops early is no answer, whether the connection broke or closed in order."""
    async with serving([*_first(name, count), END if orderly else CLOSE]) as server:
        error = await failure(port(name, server.url), request(stream=True))

    assert ("truncated", True) == (error.kind, error.may_be_paid)


async def test_a_stall_ends_at_the_documented_limit(name: str) -> None:
    """A stream without a byte for `stall_seconds` fails as a timeout, and its connection closes."""
    async with serving([*_first(name, 3), HOLD]) as server:
        error = await failure(port(name, server.url, stall_seconds=0.2), request(stream=True))
        await asyncio.wait_for(server.hung_up.wait(), 10)

    assert ("timeout", True) == (error.kind, error.may_be_paid)
    assert "no byte for 0.2 s" in str(error)


async def test_a_stream_that_does_not_begin_stalls_too(name: str) -> None:
    """The limit counts from the request on: a server that takes it and is silent has stalled."""
    async with serving([HOLD]) as server:
        error = await failure(port(name, server.url, stall_seconds=0.2), request(stream=True))

    assert ("timeout", True) == (error.kind, error.may_be_paid)


async def test_a_whole_answer_may_be_silent_up_to_the_request_s_own_limit(name: str) -> None:
    """A whole answer comes when it is there; the attempt's own limit ends the wait."""
    async with serving([HOLD]) as server:
        llm = port(name, server.url, stall_seconds=0.01)
        error = await failure(llm, request(timeout_seconds=0.3))

    assert ("timeout", True) == (error.kind, error.may_be_paid)


async def test_a_trickle_of_bytes_does_not_outlive_the_attempt(name: str) -> None:
    """A stream that never falls silent is ended by the attempt's own limit."""
    trickle: Steps = [*_first(name, 3), *([chunk(b": still here\n\n")] * 3), HOLD]
    async with serving(trickle) as server:
        error = await failure(port(name, server.url), request(stream=True, timeout_seconds=0.3))

    assert ("timeout", True) == (error.kind, error.may_be_paid)


async def test_a_line_without_an_end_is_not_collected_for_ever(name: str) -> None:
    """The limit of one event ends a line that never ends, and the connection closes."""
    endless = [head().replace(b"transfer-encoding: chunked\r\n", b""), b"data: ", ENDLESS]
    async with serving(endless) as server:
        error = await failure(port(name, server.url), request(stream=True))
        await asyncio.wait_for(server.hung_up.wait(), 10)

    assert ("server", True) == (error.kind, error.may_be_paid)


async def test_an_answer_without_an_end_is_not_collected_for_ever(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of an answer ends a body that never ends."""
    monkeypatch.setattr(_exchange, "MAX_ANSWER_BYTES", 1_000_000)
    endless = [head("application/json").replace(b"transfer-encoding: chunked\r\n", b""), ENDLESS]
    async with serving(endless) as server:
        error = await failure(port(name, server.url), request())

    assert "server" == error.kind


async def test_a_gateway_s_page_is_no_answer(name: str) -> None:
    """HTML with status 502 is the gateway's: retried, its markup not shown."""
    page = b"<!DOCTYPE html><html><body>Bad gateway</body></html>"
    async with serving(whole(page, status=502, content_type="text/html")) as server:
        error = await failure(port(name, server.url), request(stream=True))

    assert ("server", 502, True) == (error.kind, error.status, error.may_be_paid)
    assert "<" not in str(error)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        pytest.param(b"<html>Log in to the hotel</html>", "text/html", id="portal"),
        pytest.param(b'{"id": "x", "cho', "application/json", id="half-json"),
        pytest.param(b"[]", "application/json", id="list"),
        pytest.param(b"null", "application/json", id="null"),
        pytest.param(b"{}", "application/json", id="empty"),
        pytest.param(b'{"content": 5, "choices": 5}', "application/json", id="wrong-types"),
        pytest.param(b'{"content": [5], "choices": [5]}', "application/json", id="wrong-items"),
        pytest.param(b"[" * 100_000, "application/json", id="deep"),
        pytest.param(b'{"content": NaN}', "application/json", id="nan"),
    ],
)
async def test_a_body_of_another_form_is_no_answer(
    name: str, stream: bool, body: bytes, content_type: str
) -> None:
    """Status 200 alone makes no answer."""
    async with serving(whole(body, content_type=content_type)) as server:
        error = await failure(port(name, server.url), request(stream=stream))

    assert ("server", True) == (error.kind, error.may_be_paid)


@pytest.mark.parametrize("data", ["{half", "[]", "5", '"x"', '{"type": "content_block_delta"}'])
async def test_an_event_of_another_form_is_no_answer(name: str, data: str) -> None:
    """A stream with an event that cannot be one ends in an error, not in a shorter answer."""
    if name == "openai" and "type" in data:
        data = '{"choices": [{"index": 0, "delta": 5}]}'
    async with serving([*_first(name, 3), chunk(event(data)), END]) as server:
        error = await failure(port(name, server.url), request(stream=True))

    assert ("server", True) == (error.kind, error.may_be_paid)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "Slow down"}, "rate_limited"),
        ({"type": "api_error", "message": "Oops"}, "server"),
        ({"type": "something_new", "message": "Oops"}, "server"),
        ({"code": "insufficient_quota", "message": "Pay"}, "quota"),
        ({"code": "context_length_exceeded", "message": "Too long"}, "context_length"),
        ({"code": 429, "message": "Upstream is busy"}, "rate_limited"),
        ({"code": 502, "message": "Upstream is gone"}, "server"),
        ("just text", "server"),
    ],
)
async def test_an_error_event_is_no_answer(name: str, said: object, kind: str) -> None:
    """An error inside a stream is classified by what it says, for no status does."""
    wrong = b"event: error\n" + event({"type": "error", "error": said})
    async with serving([*_first(name, 3), chunk(wrong), END]) as server:
        error = await failure(port(name, server.url), request(stream=True))

    assert (kind, None, True) == (error.kind, error.status, error.may_be_paid)


async def test_an_error_in_place_of_an_answer_is_classified(name: str) -> None:
    """Some gateways send errors with status 200."""
    said = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with serving(whole(said)) as server:
        error = await failure(port(name, server.url), request())

    assert "overloaded" == error.kind


async def test_an_error_that_cannot_be_read_is_mapped(name: str) -> None:
    """The SDKs read the body of a refusal themselves; what breaks there is mapped as well."""
    cut = [b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\n{", CLOSE]
    async with serving(cut) as server:
        error = await failure(port(name, server.url), request())

    assert ("network", True) == (error.kind, error.may_be_paid)


async def test_nobody_listens(name: str) -> None:
    """A connection that cannot be opened is the network's fault, and nothing was paid."""
    async with serving() as server:
        gone = server.url
    error = await failure(port(name, gone), request())

    assert ("network", False) == (error.kind, error.may_be_paid)


async def test_a_server_that_hangs_up_may_have_been_paid(name: str) -> None:
    """A connection that closes before any answer leaves open what was done."""
    async with serving([CLOSE]) as server:
        error = await failure(port(name, server.url), request(stream=True))

    assert ("network", True) == (error.kind, error.may_be_paid)


async def test_after_the_stop_reason_a_broken_connection_breaks_nothing(name: str) -> None:
    """An answer that is complete is an answer: it was paid, and would be bought again."""
    async with serving([*_upto_reason(name), HOLD]) as server:
        reply, _ = await ask(port(name, server.url, stall_seconds=0.2), request(stream=True))

    assert ("Hi there", "end") == (reply.text, reply.stop)


async def test_a_server_that_keeps_the_stream_open_after_its_end_delays_nothing(name: str) -> None:
    """`message_stop` and `[DONE]` end a stream; the open connection is not waited for."""
    async with serving([*_first(name, 99), HOLD]) as server:
        reply, _ = await ask(port(name, server.url), request(stream=True))
        await asyncio.wait_for(server.hung_up.wait(), 10)

    assert "Hi there" == reply.text


async def test_a_server_that_does_not_stream_is_understood(name: str) -> None:
    """A whole answer to a request for a stream is an answer without deltas."""
    async with serving(whole(answer_of(name))) as server:
        reply, deltas = await ask(port(name, server.url), request(stream=True))

    assert ("Hi there", "") == (reply.text, deltas)


async def test_events_may_be_cut_anywhere(name: str) -> None:
    """Chunks of one byte give the same reply: borders of chunks mean nothing."""
    data = b"".join(event(item) for item in events_of(name, text="Grüße, 世界 👋"))
    crlf = data.replace(b"\n", b"\r\n")
    for body in (data, crlf):
        async with serving([head(), *(chunk(bytes([byte])) for byte in body), END]) as server:
            reply, deltas = await ask(port(name, server.url), request(stream=True))

        assert "Grüße, 世界 👋" == reply.text == deltas


async def test_cancelling_closes_the_connection(name: str) -> None:
    """A cancelled attempt hangs up at once, in the midst of an answer too."""
    async with serving([*_first(name, 4), HOLD]) as server:
        began = asyncio.Event()

        async def attempt() -> None:
            async for item in port(name, server.url).attempt(request(stream=True)):
                assert isinstance(item, TextDelta)
                began.set()

        task = asyncio.create_task(attempt())
        await asyncio.wait_for(began.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_leaving_the_stream_closes_the_connection(name: str) -> None:
    """A consumer that closes the stream after a delta hangs up."""
    async with serving([*_first(name, 4), HOLD]) as server:
        items = port(name, server.url).attempt(request(stream=True))
        assert isinstance(await anext(items), TextDelta)
        await items.aclose()  # type: ignore[attr-defined] # an async generator
        await asyncio.wait_for(server.hung_up.wait(), 10)


@pytest.mark.parametrize("stream", [True, False])
async def test_f118_a_key_that_a_server_sends_back_is_not_shown(
    name: str, stream: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The key is in no error, no cause of it, and no log line."""
    caplog.set_level("DEBUG")
    said = {"error": {"type": "authentication_error", "message": f"bad key {KEY}"}}
    inside = [*_first(name, 2), chunk(event(said)), END] if stream else whole(said)
    if name == "anthropic" and stream:
        inside = [*_first(name, 2), chunk(event({"type": "error", **said})), END]
    async with serving(whole(said, status=401), inside) as server:
        llm = port(name, server.url)
        for _ in range(2):
            error = await failure(llm, request(stream=stream))
            shown: BaseException | None = error
            while shown is not None:
                assert KEY not in f"{shown!r} {shown}"
                shown = shown.__cause__
            assert "auth" == error.kind
            assert "[key]" in str(error)

    assert KEY not in caplog.text
    assert KEY not in repr(llm)
