"""Each fault, seen on the wire."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from agentkit.testing.provider import Answer, CallSpec, Fault, FaultError, StrictProvider
from tests.testing.provider.raw import (
    ASK,
    Response,
    anthropic_request,
    events,
    openai_request,
    post_anthropic,
    post_openai,
)

LONG = "One, two, three, four, five, six, seven, eight, nine, ten."
POSTS = {"anthropic": post_anthropic, "openai": post_openai}
BODIES = {"anthropic": anthropic_request(ASK), "openai": openai_request(ASK)}
STREAMS = {api: body | {"stream": True} for api, body in BODIES.items()}
BOTH = pytest.mark.parametrize("api", ["anthropic", "openai"])


@pytest.fixture
def talker() -> Iterator[StrictProvider]:
    """A provider whose answer takes several events."""
    with StrictProvider(lambda request: Answer(text=LONG)) as running:
        yield running


def _error_of(response: Response) -> dict[str, object]:
    error = response.json["error"]
    assert isinstance(error, dict)
    return error


def _read_raw(provider: StrictProvider, body: object, *, limit: int = 1 << 20) -> bytes:
    """Send a Messages request and return what comes back until the end, or up to a limit."""
    host, _, port = urlsplit(provider.url).netloc.partition(":")
    raw = json.dumps(body).encode()
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nx-api-key: test-key\r\n"
        f"anthropic-version: 2023-06-01\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode() + raw)
        received = b""
        while len(received) < limit and (part := connection.recv(1 << 16)):
            received += part
        return received


STATUSES = [
    ("anthropic", Fault.rate_limit(), 429, "rate_limit_error", None),
    ("anthropic", Fault.spend_limit(), 429, "rate_limit_error", None),
    ("anthropic", Fault.overloaded(), 529, "overloaded_error", None),
    ("anthropic", Fault.error(500), 500, "api_error", None),
    ("anthropic", Fault.error(401), 401, "authentication_error", None),
    ("anthropic", Fault.error(400), 400, "invalid_request_error", None),
    ("anthropic", Fault.error(408), 408, "invalid_request_error", None),
    ("anthropic", Fault.error(403), 403, "permission_error", None),
    ("openai", Fault.rate_limit(), 429, "requests", "rate_limit_exceeded"),
    ("openai", Fault.spend_limit(), 429, "insufficient_quota", "insufficient_quota"),
    ("openai", Fault.overloaded(), 503, "server_error", None),
    ("openai", Fault.error(500), 500, "server_error", None),
    ("openai", Fault.error(401), 401, "invalid_request_error", "invalid_api_key"),
    ("openai", Fault.error(400), 400, "invalid_request_error", None),
    ("openai", Fault.error(408), 408, "invalid_request_error", None),
]


@pytest.mark.parametrize(("api", "fault", "status", "kind", "code"), STATUSES)
def test_status(
    *, talker: StrictProvider, api: str, fault: Fault, status: int, kind: str, code: str | None
) -> None:
    """An error fault has the status and the error shape of its API, and sells nothing."""
    talker.fail_next(fault)
    failed = POSTS[api](talker, BODIES[api])
    after = POSTS[api](talker, BODIES[api])

    assert (failed.status, after.status) == (status, 200)
    assert _error_of(failed)["type"] == kind
    assert _error_of(failed).get("code") == code
    assert [(call.bought, call.fault) for call in talker.calls] == [
        (False, fault.kind),
        (True, None),
    ]
    assert talker.refusals == []


def test_a_fault_says_what_it_is_told_to_say(talker: StrictProvider) -> None:
    """The message of an error fault can be chosen."""
    talker.fail_next(Fault.error(400, message="You have reached your specified API usage limits."))
    failed = post_anthropic(talker, BODIES["anthropic"])

    assert _error_of(failed)["message"] == "You have reached your specified API usage limits."


def test_rate_limit_gives_advice(talker: StrictProvider) -> None:
    """The three headers that say whether and when to try again are sent as ordered."""
    date = "Wed, 21 Oct 2026 07:28:00 GMT"
    talker.fail_next(
        Fault.rate_limit(retry_after=2, retry_after_ms=1500, should_retry=False),
        Fault.rate_limit(retry_after=date, should_retry=True),
    )
    first = post_anthropic(talker, BODIES["anthropic"]).headers
    second = post_openai(talker, BODIES["openai"]).headers

    assert (first["retry-after"], first["retry-after-ms"]) == ("2", "1500")
    assert (first["x-should-retry"], second["x-should-retry"]) == ("false", "true")
    assert second["retry-after"] == date
    assert "retry-after-ms" not in second


def test_html(talker: StrictProvider) -> None:
    """A gateway's page is no JSON."""
    talker.fail_next(Fault.html())
    failed = post_openai(talker, BODIES["openai"])

    assert (failed.status, failed.headers["content-type"]) == (502, "text/html")
    assert failed.body.startswith(b"<html>")


@BOTH
def test_stall_before_headers(talker: StrictProvider, api: str) -> None:
    """A stalled answer is bought at once, sends nothing, and comes whole after release."""
    talker.fail_next(Fault.stall())
    answers: list[Response] = []
    waiting = threading.Thread(target=lambda: answers.append(POSTS[api](talker, BODIES[api])))
    waiting.start()

    assert talker.wait_for_calls(1)
    assert talker.calls[0].bought
    assert answers == []
    talker.release()
    waiting.join(20)
    assert [answer.status for answer in answers] == [200]


def test_stall_ends_by_itself(talker: StrictProvider) -> None:
    """A stall of a given length ends without help; the record remembers it."""
    talker.fail_next(Fault.stall(0.01))

    assert post_anthropic(talker, BODIES["anthropic"]).status == 200
    assert talker.wait_until(lambda calls: calls[0].answered)
    assert talker.calls[0].held


def test_stall_ends_with_its_client(talker: StrictProvider) -> None:
    """A stalled answer whose client has hung up is bought and not sent."""
    talker.fail_next(Fault.stall())
    host, _, port = urlsplit(talker.url).netloc.partition(":")
    raw = json.dumps(BODIES["openai"]).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer test-key\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode() + raw)
        assert talker.wait_for_calls(1)

    assert talker.settle()
    assert [(call.bought, call.answered) for call in talker.calls] == [(True, False)]


def test_stall_in_mid_stream(talker: StrictProvider) -> None:
    """The first events go out, then nothing, and the rest after release."""
    talker.fail_next(Fault.stall_stream(after=3))
    connection = http.client.HTTPConnection(urlsplit(talker.url).netloc, timeout=20)
    headers = {"x-api-key": "test-key", "anthropic-version": "2023-06-01"}
    connection.request("POST", "/v1/messages", json.dumps(STREAMS["anthropic"]), headers)
    assert talker.wait_until(lambda calls: bool(calls) and calls[0].held)
    reply = connection.getresponse()
    begun = b"".join(reply.readline() for _ in range(9))

    assert [name for name, _ in events(begun)] == ["message_start", "ping", "content_block_start"]
    assert not talker.calls[0].answered
    talker.release()
    assert [name for name, _ in events(reply.read())][-1] == "message_stop"
    assert talker.wait_until(lambda calls: calls[0].answered)
    connection.close()


def test_cut_before_headers(talker: StrictProvider) -> None:
    """The connection closes without a byte; the answer is bought and lost."""
    talker.fail_next(Fault.cut_before_headers())

    assert _read_raw(talker, BODIES["anthropic"]) == b""
    (call,) = talker.calls
    assert (call.bought, call.answered, call.status) == (True, False, 0)


def test_cut_stream(talker: StrictProvider) -> None:
    """The stream breaks off without the terminator of its encoding."""
    talker.fail_next(Fault.cut_stream(after=4))
    received = _read_raw(talker, STREAMS["anthropic"])

    assert received.count(b"event: ") == 4
    assert not received.endswith(b"0\r\n\r\n")
    assert [(call.bought, call.answered) for call in talker.calls] == [(True, False)]


@BOTH
def test_cut_stream_is_seen_by_a_client(talker: StrictProvider, api: str) -> None:
    """A client that reads to the end learns that the end is missing."""
    talker.fail_next(Fault.cut_stream(after=2))

    with pytest.raises(http.client.IncompleteRead):
        POSTS[api](talker, STREAMS[api])


@BOTH
def test_cut_json(talker: StrictProvider, api: str) -> None:
    """Outside a stream half of the announced body arrives."""
    talker.fail_next(Fault.cut_stream())

    with pytest.raises(http.client.IncompleteRead):
        POSTS[api](talker, BODIES[api])


@BOTH
def test_end_stream(talker: StrictProvider, api: str) -> None:
    """The stream ends in order though its last events are missing."""
    talker.fail_next(Fault.end_stream(after=2))
    response = POSTS[api](talker, STREAMS[api])

    assert response.status == 200
    assert len(list(events(response.body))) == 2
    assert talker.settle()
    assert [call.answered for call in talker.calls] == [False]


@BOTH
def test_end_json(talker: StrictProvider, api: str) -> None:
    """Outside a stream the body is half a JSON text, and complete as HTTP sees it."""
    talker.fail_next(Fault.end_stream())
    response = POSTS[api](talker, BODIES[api])

    with pytest.raises(json.JSONDecodeError):
        json.loads(response.body)


def test_anthropic_error_in_stream(talker: StrictProvider) -> None:
    """After some events comes an `error` event, and then the end."""
    talker.fail_next(Fault.stream_error(after=4))
    seen = list(events(post_anthropic(talker, STREAMS["anthropic"]).body))

    assert len(seen) == 5
    assert seen[-1] == (
        "error",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    )


def test_openai_error_in_stream(talker: StrictProvider) -> None:
    """After some chunks comes one that holds an error, and then the end, without `[DONE]`."""
    talker.fail_next(Fault.stream_error(after=2))
    _, last = list(events(post_openai(talker, STREAMS["openai"]).body))[-1]

    assert isinstance(last, dict)
    assert last["error"]["type"] == "server_error"


@BOTH
def test_error_in_stream_without_a_stream(talker: StrictProvider, api: str) -> None:
    """A request that wants JSON gets the error as a status."""
    talker.fail_next(Fault.stream_error())

    assert POSTS[api](talker, BODIES[api]).status == 500
    assert not talker.calls[0].bought


@pytest.mark.parametrize("body", [STREAMS["anthropic"], BODIES["anthropic"]], ids=["sse", "json"])
def test_endless_line(talker: StrictProvider, body: object) -> None:
    """After some frames come bytes without a newline, more than anybody should keep."""
    talker.fail_next(Fault.endless_line(after=2))
    received = _read_raw(talker, body, limit=1 << 20)

    assert len(received) >= 1 << 20
    assert b"\n\n" not in received[received.rindex(b"data: ") :].replace(b"\r\n", b"")


def test_anthropic_without_stop_reason(talker: StrictProvider) -> None:
    """The answer is whole but for its stop reason, in a stream and outside."""
    talker.always(Fault.no_stop_reason())
    streamed = dict(events(post_anthropic(talker, STREAMS["anthropic"]).body))
    whole = post_anthropic(talker, BODIES["anthropic"]).json

    delta = streamed["message_delta"]
    assert isinstance(delta, dict)
    assert delta["delta"]["stop_reason"] is None
    assert "message_stop" in streamed
    assert whole["stop_reason"] is None


def test_openai_without_finish_reason(talker: StrictProvider) -> None:
    """No chunk has a finish reason, and yet the stream ends in order."""
    talker.fail_next(Fault.no_stop_reason())
    *chunks, (_, done) = events(post_openai(talker, STREAMS["openai"]).body)

    assert done == "[DONE]"
    assert {
        choice["finish_reason"]
        for _, chunk in chunks
        if isinstance(chunk, dict)
        for choice in chunk["choices"]
    } == {None}


def test_faults_strike_in_order_and_once(talker: StrictProvider) -> None:
    """The queue is used up in order; a standing fault strikes when the queue has none."""
    talker.always(Fault.error(500))
    talker.fail_next(Fault.overloaded(), Fault.error(408))
    statuses = [post_anthropic(talker, BODIES["anthropic"]).status for _ in range(4)]
    talker.clear_faults()
    statuses.append(post_anthropic(talker, BODIES["anthropic"]).status)

    assert statuses == [529, 408, 500, 500, 200]


def test_a_fault_waits_for_its_turn_and_api(talker: StrictProvider) -> None:
    """A fault for one turn or one API lets other requests pass."""
    talker.fail_next(Fault.error(500, turn=1), Fault("status", status=408, api="openai"))
    later = anthropic_request(ASK, {"role": "assistant", "content": "Hi."}, ASK)
    statuses = [
        post_anthropic(talker, BODIES["anthropic"]).status,
        post_openai(talker, BODIES["openai"]).status,
        post_anthropic(talker, later).status,
        post_anthropic(talker, later).status,
    ]

    assert statuses == [200, 408, 500, 200]


def test_a_refused_request_uses_up_no_fault(talker: StrictProvider) -> None:
    """Refusals come first, so that a fault can never hide an invalid request."""
    talker.fail_next(Fault.error(500))
    statuses = [
        post_anthropic(talker, anthropic_request()).status,
        post_anthropic(talker, BODIES["anthropic"]).status,
    ]

    assert statuses == [400, 500]


@pytest.mark.parametrize(
    "value", [3, {}, {"kind": "flood"}, {"kind": "stall", "minutes": 3}], ids=str
)
def test_malformed_faults_are_named(value: object) -> None:
    """A fault that cannot be read is an error that says why."""
    with pytest.raises(FaultError, match="fault"):
        Fault.from_json(value)


def test_closing_ends_stalls() -> None:
    """A provider closes at once though an answer is stalled."""
    failures: list[Exception] = []
    with StrictProvider([Answer(tool_calls=[CallSpec("add")])]) as provider:
        provider.fail_next(Fault.stall())
        client = threading.Thread(target=_swallow, args=(provider, failures))
        client.start()
        assert provider.wait_for_calls(1)
    client.join(20)

    assert not client.is_alive()


def _swallow(provider: StrictProvider, failures: list[Exception]) -> None:
    try:
        post_anthropic(provider, BODIES["anthropic"])
    except (OSError, http.client.HTTPException) as error:
        failures.append(error)
