"""The HTTP shell: sockets, threads, routes; every decision is made elsewhere."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from agentkit.testing.provider.control import CONTROL_PREFIX, control_reply
from agentkit.testing.provider.delivery import Stalls, deliver
from agentkit.testing.provider.fault_replies import refusal_reply
from agentkit.testing.provider.gate import API_PATHS, MAX_BODY_BYTES
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.reply import Reply
from agentkit.testing.provider.script import Api
from agentkit.testing.provider.service import Service, request_id

__all__ = ["HttpServer"]

_JOIN_SECONDS = 5.0
_TOO_LARGE = Refusal("too_large", "Request exceeds the maximum size", 413, "request_too_large")
_NO_LENGTH = Refusal("no_length", "Content-Length is required", 411)


class HttpServer(ThreadingHTTPServer):
    """Listens, and gives each connection a thread that `hang_up` ends.

    Args:
        address: host and port; port 0 takes a free one.
        service: decides.
        stalls: the stalled responses.

    Raises:
        OSError: the address cannot be bound.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *, service: Service, stalls: Stalls) -> None:
        self.service = service
        self.stalls = stalls
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        super().__init__(address, _Handler)

    def finish_request(self, request: object, client_address: object) -> None:
        """Serve one connection to its end."""
        connection: socket.socket = request  # type: ignore[assignment]
        with self._lock:
            self._open[connection] = threading.current_thread()
        try:
            _Handler(connection, client_address, self)
        except OSError:
            pass  # the client is gone
        finally:
            with self._lock:
                del self._open[connection]

    def hang_up(self) -> None:
        """Close all connections and wait for their threads."""
        with self._lock:
            still_open = dict(self._open)
        for connection in still_open:
            _shut(connection)
        for thread in still_open.values():
            thread.join(_JOIN_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """One connection; also the `Wire` on which its responses are delivered."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpServer

    def do_POST(self) -> None:
        """Answer an API request or a control request."""
        ticket = self.server.stalls.ticket()  # before anybody can know of this request
        raw = self._read_body()
        path = urlsplit(self.path).path
        if isinstance(raw, Refusal):
            self.close_connection = True
            self._refuse(raw)
        elif path.startswith(CONTROL_PREFIX):
            self._whole(control_reply(self.server.service, self.server.stalls, self.path, raw))
        elif path in API_PATHS:
            self._answer(API_PATHS[path], raw, ticket)
        else:
            self._unknown_path()

    def do_GET(self) -> None:
        """Answer a control request."""
        if self.path.startswith(CONTROL_PREFIX):
            self._whole(control_reply(self.server.service, self.server.stalls, self.path, None))
        else:
            self._unknown_path()

    def _answer(self, api: Api, raw: bytes, ticket: threading.Event) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        outcome = self.server.service.handle(api, self.path, headers, raw)
        name = "request-id" if api == "anthropic" else "x-request-id"
        self._request_id = (name, request_id(outcome.call))
        self._call = outcome.call
        ledger, whole = self.server.service.ledger, False
        try:
            whole = deliver(self, outcome.reply, outcome.fault, ticket)
        finally:
            if whole and self._call.bought:
                ledger.sent(self._call)
            else:
                ledger.update(replace(self._call, ended=True))

    def _unknown_path(self) -> None:
        message = f"Invalid URL ({self.command} {urlsplit(self.path).path})"
        self._refuse(Refusal("unknown_path", message, 404, "not_found_error"))

    def _refuse(self, refusal: Refusal) -> None:
        api: Api = "anthropic" if self.path.startswith("/v1/messages") else "openai"
        self._whole(refusal_reply(api, refusal, request_id="req_unread"))

    def _whole(self, reply: Reply) -> None:
        self._request_id = ("request-id", "req_unread")
        deliver(self, reply, None, threading.Event())

    def _read_body(self) -> bytes | Refusal:
        length = self.headers.get("content-length", "")
        if not length.isdecimal():
            return _NO_LENGTH
        if int(length) > MAX_BODY_BYTES:
            return _TOO_LARGE
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise ConnectionAbortedError("the client went away in the middle of its request")
        return raw

    def head(self, reply: Reply, *, length: int | None) -> None:
        """Send status and headers."""
        self.send_response(reply.status)
        self.send_header("content-type", reply.content_type)
        for name, value in (self._request_id, *reply.headers):
            self.send_header(name, value)
        if length is None:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.send_header("content-length", str(length))
        self.end_headers()

    def write(self, frame: bytes, *, chunked: bool) -> None:
        """Send a part of the body."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame) if chunked else frame)

    def finish(self, *, chunked: bool = False) -> None:
        """Say that the body is complete."""
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def hold(self) -> None:
        """Put on the record that the rest is held back."""
        self._call = self.server.service.ledger.update(replace(self._call, held=True))

    def cut(self) -> None:
        """Close the connection as it is."""
        self.close_connection = True
        _shut(self.connection)

    def gone(self) -> bool:
        """Whether the client has closed its side."""
        try:
            waiting: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not waiting

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base
        """Stay silent: the records say more."""


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be shut already
        connection.shutdown(socket.SHUT_RDWR)
