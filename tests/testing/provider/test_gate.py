"""Keys, models, paths, and bodies that are not JSON."""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from agentkit.testing.provider import Answer, StrictProvider
from tests.testing.provider.raw import (
    ASK,
    anthropic_request,
    openai_request,
    post_anthropic,
    post_openai,
    request,
)

VALID_ANTHROPIC = anthropic_request(ASK)
VALID_OPENAI = openai_request(ASK)
UNREADABLE = [
    pytest.param(b"{", id="half"),
    pytest.param(b"", id="empty"),
    pytest.param(b"[]", id="array"),
    pytest.param(b'{"max_tokens": NaN}', id="NaN"),
    pytest.param(b'{"max_tokens": -Infinity}', id="Infinity"),
    pytest.param(b'{"model": "\\ud83d"}', id="lone surrogate"),
    pytest.param(b'{"model": "\xff"}', id="not UTF-8"),
]


def _error_of(body: Mapping[str, object]) -> dict[str, object]:
    error = body["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize("raw", UNREADABLE)
def test_anthropic_refuses_what_is_not_json(provider: StrictProvider, raw: bytes) -> None:
    """Bytes that are not one JSON object get status 400 in the shape of the Messages API."""
    response = post_anthropic(provider, raw)

    assert response.status == 400
    assert _error_of(response.json)["type"] == "invalid_request_error"
    assert str(_error_of(response.json)["message"]).startswith("The request body is not valid JSON")


@pytest.mark.parametrize("raw", UNREADABLE)
def test_openai_refuses_what_is_not_json(provider: StrictProvider, raw: bytes) -> None:
    """Bytes that are not one JSON object get status 400 in the shape of Chat Completions."""
    response = post_openai(provider, raw)

    assert response.status == 400
    assert str(_error_of(response.json)["message"]).startswith("We could not parse the JSON body")


def test_anthropic_refuses_other_keys(provider: StrictProvider) -> None:
    """A wrong key and a missing one get status 401 and an authentication error."""
    wrong = post_anthropic(provider, VALID_ANTHROPIC, key="other")
    missing = request(provider.url, "POST", "/v1/messages", body=b"{}")

    assert (wrong.status, missing.status) == (401, 401)
    assert _error_of(wrong.json) == {
        "type": "authentication_error",
        "message": "invalid x-api-key",
    }
    assert _error_of(missing.json)["message"] == "x-api-key header is required"


def test_openai_refuses_other_keys(provider: StrictProvider) -> None:
    """A wrong key gets status 401 and `invalid_api_key`; a missing one gets status 401."""
    wrong = post_openai(provider, VALID_OPENAI, key="other")
    missing = request(provider.url, "POST", "/v1/chat/completions", body=b"{}")

    assert (wrong.status, missing.status) == (401, 401)
    assert _error_of(wrong.json)["code"] == "invalid_api_key"
    assert str(_error_of(missing.json)["message"]).startswith("You didn't provide an API key")


def test_anthropic_wants_a_version(provider: StrictProvider) -> None:
    """A request without `anthropic-version` is refused."""
    headers = {"authorization": "Bearer test-key"}
    response = request(provider.url, "POST", "/v1/messages", body=b"{}", headers=headers)

    assert response.status == 400
    assert _error_of(response.json)["message"] == "anthropic-version: header is required"


def test_unknown_models_are_not_found() -> None:
    """With a list of models, any other gets status 404 in the words of its API."""
    with StrictProvider([Answer(text="Yes.")], models=["claude-fake"]) as provider:
        known = post_anthropic(provider, VALID_ANTHROPIC)
        anthropic = post_anthropic(provider, VALID_ANTHROPIC | {"model": "claude-none"})
        openai = post_openai(provider, VALID_OPENAI)

    assert (known.status, anthropic.status, openai.status) == (200, 404, 404)
    assert _error_of(anthropic.json) == {
        "type": "not_found_error",
        "message": "model: claude-none",
    }
    assert _error_of(openai.json)["code"] == "model_not_found"


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/messages"])
def test_anthropic_paths(provider: StrictProvider, path: str) -> None:
    """The beta query changes nothing."""
    assert post_anthropic(provider, VALID_ANTHROPIC, path=path).status == 200
    assert provider.calls[0].path == path


def test_openai_paths(provider: StrictProvider) -> None:
    """Chat Completions is served with and without the version prefix."""
    assert post_openai(provider, VALID_OPENAI, path="/chat/completions").status == 200


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/other"), ("GET", "/v1/messages")])
def test_other_paths_are_not_found(provider: StrictProvider, method: str, path: str) -> None:
    """An unknown path gets status 404 and is no call."""
    response = request(provider.url, method, path, body=b"{}")

    assert response.status == 404
    assert provider.calls == []


def test_a_body_without_length_is_refused(provider: StrictProvider) -> None:
    """Only bodies of a declared length are read."""
    headers = {"transfer-encoding": "chunked"}
    response = request(provider.url, "POST", "/v1/messages", headers=headers)

    assert response.status == 411


def test_half_a_request_is_none(provider: StrictProvider) -> None:
    """A client that is killed while it sends has asked nothing, so nothing is refused either."""
    host, _, port = urlsplit(provider.url).netloc.partition(":")
    head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head + b'{"model": "gp')
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1)

    assert (b"", []) == (answer, provider.calls)


def test_a_body_over_the_limit_is_refused(provider: StrictProvider) -> None:
    """A declared length over 32 MiB gets status 413 before the body is read."""
    headers = {"content-length": str(32 * 1024 * 1024 + 1)}
    response = request(provider.url, "POST", "/v1/messages", headers=headers)

    assert response.status == 413
    assert _error_of(response.json)["type"] == "request_too_large"
