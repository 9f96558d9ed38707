"""How a response goes out, whole or spoiled by a fault."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from agentkit.testing.provider.fault_replies import error_event
from agentkit.testing.provider.faults import Fault
from agentkit.testing.provider.reply import Reply

__all__ = ["Stalls", "Wire", "deliver"]

_TICK_SECONDS = 0.05
_ENDLESS = b"x" * 4096
_ENDLESS_PAUSE_SECONDS = 0.001


class Stalls:
    """The waits of all stalled responses: each ends by itself, by release, or with its client."""

    def __init__(self) -> None:
        self._release = threading.Event()
        self._closed = False

    def ticket(self) -> threading.Event:
        """Return what the next `release` will set; take it before anybody can know of the stall."""
        return self._release

    def release(self) -> None:
        """End all stalls that hold a ticket."""
        old, self._release = self._release, threading.Event()
        if self._closed:
            self._release.set()
        old.set()

    def close(self) -> None:
        """End all stalls, and those to come."""
        self._closed = True
        self.release()


class Wire(Protocol):
    """One connection that is about to receive a response.

    Each method raises `OSError` when the client is gone.
    """

    def head(self, reply: Reply, *, length: int | None) -> None:
        """Send status and headers; without a length the body is sent in chunks."""
        ...

    def write(self, frame: bytes, *, chunked: bool) -> None:
        """Send a part of the body."""
        ...

    def finish(self, *, chunked: bool) -> None:
        """Say that the body is complete."""
        ...

    def hold(self) -> None:
        """Put on the record that everything so far is sent and the rest is held back."""
        ...

    def cut(self) -> None:
        """Close the connection as it is."""
        ...

    def gone(self) -> bool:
        """Whether the client has closed its side."""
        ...


def deliver(wire: Wire, reply: Reply, fault: Fault | None, ticket: threading.Event) -> bool:
    """Send a response.

    Args:
        wire: where to.
        reply: the whole response.
        fault: how to spoil it.
        ticket: of `Stalls`, taken when the request arrived.

    Returns:
        Whether all of the reply went out, in order and to the end.

    Raises:
        OSError: the client is gone.
    """
    kind = None if fault is None else fault.kind
    if fault is None or kind == "no_stop_reason":
        return _send(wire, reply, reply.frames)
    if kind == "cut_before_headers":
        wire.cut()
        return False
    if kind == "stall":
        _hold(wire, fault.seconds, ticket)
        return _send(wire, reply, reply.frames)
    # A stream may lose all but its first frame; a JSON body always loses its end.
    first = reply.frames[: max(0, min(fault.after, len(reply.frames) - 1))]
    rest = reply.frames[len(first) :]
    if kind == "stall_stream":
        return _send(wire, reply, first, rest, between=lambda: _hold(wire, fault.seconds, ticket))
    if kind == "cut_stream":
        _send(wire, reply, first, complete=False)
        wire.cut()
    elif kind == "end_stream":
        _send(wire, reply, first)
    elif kind == "stream_error":
        _send(wire, reply, [*first, error_event(reply.api, message=fault.message)])
    else:
        _send_endless_line(wire, reply, first, ticket)
    return False


def _send(
    wire: Wire,
    reply: Reply,
    first: Sequence[bytes],
    rest: Sequence[bytes] = (),
    *,
    between: Callable[[], object] = bool,
    complete: bool = True,
) -> bool:
    chunked = reply.streamed
    announced = [*first, *rest] if complete else reply.frames
    wire.head(reply, length=None if chunked else sum(map(len, announced)))
    for frame in first:
        wire.write(frame, chunked=chunked)
    between()
    for frame in rest:
        wire.write(frame, chunked=chunked)
    if complete:
        wire.finish(chunked=chunked)
    return complete


def _send_endless_line(
    wire: Wire, reply: Reply, first: Sequence[bytes], ticket: threading.Event
) -> None:
    wire.head(reply, length=None)
    for frame in first:
        wire.write(frame, chunked=True)
    wire.write(b"data: ", chunked=True)
    while not ticket.wait(_ENDLESS_PAUSE_SECONDS):
        wire.write(_ENDLESS, chunked=True)
    wire.cut()


def _hold(wire: Wire, seconds: float, ticket: threading.Event) -> None:
    wire.hold()
    for _ in range(math.ceil(seconds / _TICK_SECONDS)):
        if ticket.wait(min(_TICK_SECONDS, seconds)):
            return
        if wire.gone():
            raise ConnectionAbortedError("the client did not wait")
