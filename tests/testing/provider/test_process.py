"""The provider as a process of its own, ordered about from here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentkit.testing.provider import StrictProvider, read_log
from tests.testing.provider.raw import ASK, anthropic_request, openai_request, request

SCRIPT = {"turns": [{"text": "one"}, {"text": "two"}]}
HEADERS = {
    "x-api-key": "test-key",
    "authorization": "Bearer test-key",
    "anthropic-version": "2023-06-01",
}


@contextmanager
def _process(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a provider and yield its URL and its process; kill it if it still runs."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", "agentkit.testing.provider", "--script", str(script)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running.stdout.readline().strip(), running
        finally:
            running.kill()


def _ask(url: str) -> int:
    body = json.dumps(anthropic_request(ASK)).encode()
    return request(url, "POST", "/v1/messages", body=body, headers=HEADERS).status


def _control(url: str, name: str, value: object) -> tuple[int, dict[str, object]]:
    response = request(url, "POST", f"/__control/{name}", body=json.dumps(value).encode())
    return response.status, response.json


def _calls(url: str, query: str = "") -> list[dict[str, object]]:
    found = request(url, "GET", f"/__control/calls{query}").json["calls"]
    assert isinstance(found, list)
    return found


def test_serves_prints_its_url_and_ends_in_order(tmp_path: Path) -> None:
    """The process prints its URL, answers, and leaves with 0 on SIGTERM."""
    with _process(tmp_path, "--model", "claude-fake") as (url, running):
        assert _ask(url) == 200
        body = json.dumps(openai_request(ASK)).encode()
        unknown = request(url, "POST", "/v1/chat/completions", body=body, headers=HEADERS)
        running.send_signal(signal.SIGTERM)

        assert unknown.status == 404
        assert running.wait(20) == 0


def test_an_unusable_script_is_said_in_one_line(tmp_path: Path) -> None:
    """A script that cannot be used ends the process with 2 and a line that names the file."""
    path = tmp_path / "broken.json"
    path.write_text("{")
    command = [sys.executable, "-m", "agentkit.testing.provider", "--script", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert "broken.json" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_calls_can_be_read(tmp_path: Path) -> None:
    """Another process sees each call with its request, its refusal, and what was sold."""
    with _process(tmp_path) as (url, _):
        _ask(url)
        refused = json.dumps(anthropic_request()).encode()
        request(url, "POST", "/v1/messages", body=refused, headers=HEADERS)
        sold, unsold = _calls(url, "?wait=2")

    assert (sold["status"], sold["bought"], sold["turn"]) == (200, True, 0)
    assert sold["request"] == anthropic_request(ASK)
    assert (unsold["status"], unsold["bought"]) == (400, False)
    assert unsold["refusal"] == {
        "rule": "no_messages",
        "message": "messages: at least one message is required",
        "status": 400,
    }


def test_waiting_for_calls_that_do_not_come_ends(provider: StrictProvider) -> None:
    """The wait for calls has an end and says whether they came."""
    path = "/__control/calls?wait=1&timeout=0.01"

    assert request(provider.url, "GET", path).json == {"calls": [], "reached": False}


def test_faults_can_be_ordered(tmp_path: Path) -> None:
    """Queued faults strike once, a standing one until it is taken back."""
    orders: list[object] = [
        {"next": [{"kind": "status", "status": 529}], "always": {"kind": "html", "status": 502}},
        {"clear": True},
        {"always": {"kind": "spend_limit"}},
        {"always": None},
    ]
    statuses = []
    with _process(tmp_path) as (url, _):
        for order in orders:
            assert _control(url, "faults", order) == (200, {"ok": True})
            statuses += [_ask(url), _ask(url)]

    # A fault of kind `spend_limit` is a 429, whatever its status field says.
    assert statuses == [529, 502, 200, 200, 429, 429, 200, 200]


def test_the_script_can_be_exchanged(provider: StrictProvider) -> None:
    """A posted script is used from then on."""
    assert _control(provider.url, "script", [{"text": "posted"}])[0] == 200

    body = json.dumps(anthropic_request(ASK)).encode()
    response = request(provider.url, "POST", "/v1/messages", body=body, headers=HEADERS)
    assert b"posted" in response.body


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("faults", {"next": [{"kind": "flood"}]}, 400),
        ("script", {"turn": 1}, 400),
        ("release", {}, 200),
        ("other", {}, 404),
    ],
)
def test_bad_orders_are_named(
    provider: StrictProvider, name: str, value: object, status: int
) -> None:
    """An order that cannot be read gets status 400, an unknown endpoint 404."""
    assert _control(provider.url, name, value)[0] == status


def test_unreadable_orders_and_endpoints(provider: StrictProvider) -> None:
    """An order that is not JSON gets status 400; an unknown thing to read gets 404."""
    assert request(provider.url, "POST", "/__control/faults", body=b"{").status == 400
    assert request(provider.url, "GET", "/__control/other").status == 404


def test_the_log_survives_sigkill(tmp_path: Path) -> None:
    """Of an answer that was being sent at SIGKILL the log says bought, not sent."""
    log = tmp_path / "log.jsonl"
    with _process(tmp_path, "--log", str(log)) as (url, running):
        _ask(url)
        _calls(url, "?wait=1")
        _control(url, "faults", {"next": [{"kind": "stall"}]})
        body = json.dumps(anthropic_request(ASK)).encode()
        with subprocess.Popen(
            [sys.executable, "-c", _ASK, url, body.decode(), json.dumps(HEADERS)]
        ) as client:
            _calls(url, "?wait=2")
            running.kill()
            running.wait(20)
            client.wait(20)

    entries = read_log(log)
    assert [(entry["event"], entry["call"]) for entry in entries] == [
        ("bought", 1),
        ("sent", 1),
        ("bought", 2),
    ]
    assert len({entry["digest"] for entry in entries}) == 1


def test_the_log_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    """A line torn by a crash costs that line alone; the next provider appends behind it."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"event": "bought", "call": 1}\n{"event": "se')
    with StrictProvider({"turns": [{"text": "one"}]}, log=log) as provider:
        _ask(provider.url)
        assert provider.settle()

    assert [entry["event"] for entry in read_log(log)] == ["bought", "bought", "sent"]


_ASK = """
import http.client, json, sys
from urllib.parse import urlsplit
url, body, headers = sys.argv[1:]
connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
connection.request("POST", "/v1/messages", body, json.loads(headers))
try:
    connection.getresponse()
except (OSError, http.client.HTTPException):
    pass
"""
