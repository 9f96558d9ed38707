"""Failures on demand: what a fault is, and the queue that hands them out."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from agentkit.testing.provider.script import Api, ProviderRequest
from agentkit.testing.provider.shapes import Body, rows

__all__ = ["Fault", "FaultError", "FaultKind", "FaultQueue", "faults_from_json"]

FaultKind: TypeAlias = Literal[
    "status",
    "spend_limit",
    "html",
    "stall",
    "cut_before_headers",
    "stall_stream",
    "cut_stream",
    "end_stream",
    "stream_error",
    "endless_line",
    "no_stop_reason",
]

_KINDS = frozenset(get_args(FaultKind))
_BEFORE_THE_SCRIPT = frozenset({"status", "spend_limit", "html"})


class FaultError(ValueError):
    """The description of a fault is malformed; the message says which field."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail. Build it with the class methods; the fields are its JSON form.

    A fault strikes only a request that would have been answered: refusals come first.

    Args:
        kind: what happens.
        status: HTTP status of ``status`` and ``html``.
        message: what the error says instead of the service's usual words.
        retry_after: value of ``Retry-After``, seconds or an HTTP date.
        retry_after_ms: value of ``retry-after-ms``.
        should_retry: value of ``x-should-retry``.
        seconds: how long ``stall`` and ``stall_stream`` hold; `StrictProvider.release` ends them.
        after: how many frames go out first: events of a stream, halves of a JSON body.
        turn: strike only a request whose history holds so many assistant messages.
        api: strike only requests of this API.
    """

    kind: FaultKind
    status: int = 500
    message: str | None = None
    retry_after: float | str | None = None
    retry_after_ms: int | None = None
    should_retry: bool | None = None
    seconds: float = 3600.0
    after: int = 3
    turn: int | None = None
    api: Api | None = None

    @classmethod
    def rate_limit(
        cls,
        *,
        retry_after: float | str | None = None,
        retry_after_ms: int | None = None,
        should_retry: bool | None = None,
        turn: int | None = None,
    ) -> Fault:
        """Answer 429 with the given advice about the next try."""
        return cls(
            "status",
            status=429,
            retry_after=retry_after,
            retry_after_ms=retry_after_ms,
            should_retry=should_retry,
            turn=turn,
        )

    @classmethod
    def spend_limit(cls, *, turn: int | None = None) -> Fault:
        """Answer 429 because money ran out: no retry helps (OpenAI: `insufficient_quota`)."""
        return cls("spend_limit", status=429, turn=turn)

    @classmethod
    def overloaded(cls, *, turn: int | None = None) -> Fault:
        """Answer 529 `overloaded_error` (Messages), or 503 (Chat Completions has no 529)."""
        return cls("status", status=529, turn=turn)

    @classmethod
    def error(
        cls,
        status: int,
        *,
        message: str | None = None,
        should_retry: bool | None = None,
        turn: int | None = None,
    ) -> Fault:
        """Answer any status in the error shape of the service, such as 400, 401, 408 or 500."""
        return cls("status", status=status, message=message, should_retry=should_retry, turn=turn)

    @classmethod
    def html(cls, *, status: int = 502, turn: int | None = None) -> Fault:
        """Answer as a gateway does that knows nothing of JSON."""
        return cls("html", status=status, turn=turn)

    @classmethod
    def stall(cls, seconds: float = 3600.0, *, turn: int | None = None) -> Fault:
        """Hold the answer back before its headers, then send it; it counts as bought at once."""
        return cls("stall", seconds=seconds, turn=turn)

    @classmethod
    def cut_before_headers(cls, *, turn: int | None = None) -> Fault:
        """Close the connection without a byte: the answer is bought and lost."""
        return cls("cut_before_headers", turn=turn)

    @classmethod
    def stall_stream(
        cls, seconds: float = 3600.0, *, after: int = 3, turn: int | None = None
    ) -> Fault:
        """Send some frames, hold, then send the rest."""
        return cls("stall_stream", seconds=seconds, after=after, turn=turn)

    @classmethod
    def cut_stream(cls, *, after: int = 3, turn: int | None = None) -> Fault:
        """Send some frames, then close the connection without the terminator."""
        return cls("cut_stream", after=after, turn=turn)

    @classmethod
    def end_stream(cls, *, after: int = 3, turn: int | None = None) -> Fault:
        """Send some frames, then end the response in order, as if that were all."""
        return cls("end_stream", after=after, turn=turn)

    @classmethod
    def stream_error(cls, *, after: int = 3, turn: int | None = None) -> Fault:
        """Send some events, then an error event (Messages: `overloaded_error`), then end."""
        return cls("stream_error", after=after, turn=turn)

    @classmethod
    def endless_line(cls, *, after: int = 3, turn: int | None = None) -> Fault:
        """Send some frames, then bytes without a newline until the client hangs up."""
        return cls("endless_line", after=after, turn=turn)

    @classmethod
    def no_stop_reason(cls, *, turn: int | None = None) -> Fault:
        """Send the whole answer, its stop reason null."""
        return cls("no_stop_reason", turn=turn)

    @classmethod
    def from_json(cls, value: object) -> Fault:
        """Read a fault from a JSON object with the fields of this class.

        Raises:
            FaultError: not an object, an unknown kind or field.
        """
        if not isinstance(value, dict) or value.get("kind") not in _KINDS:
            raise FaultError(f"a fault is an object whose kind is one of {sorted(_KINDS)}")
        unknown = value.keys() - {entry.name for entry in fields(cls)}
        if unknown:
            raise FaultError(f"a fault has no field {sorted(unknown)}")
        return cls(**value)

    @property
    def replaces_answer(self) -> bool:
        """Whether nothing is bought: the script is not asked."""
        return self.kind in _BEFORE_THE_SCRIPT

    def strikes(self, request: ProviderRequest) -> bool:
        """Whether this fault is meant for that request."""
        return self.turn in (None, request.turn) and self.api in (None, request.api)


class FaultQueue:
    """Faults to come, safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: deque[Fault] = deque()
        self._always: Fault | None = None

    def add(self, *faults: Fault) -> None:
        """Let each of the faults strike once, in this order."""
        with self._lock:
            self._next.extend(faults)

    def always(self, fault: Fault | None) -> None:
        """Let a fault strike whenever no queued one does; None ends that."""
        with self._lock:
            self._always = fault

    def clear(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._next.clear()
            self._always = None

    def take(self, request: ProviderRequest) -> Fault | None:
        """Return the first fault that is meant for the request, and use it up."""
        with self._lock:
            for fault in self._next:
                if fault.strikes(request):
                    self._next.remove(fault)
                    return fault
            if self._always is not None and self._always.strikes(request):
                return self._always
            return None


def faults_from_json(value: Body) -> tuple[list[Fault], Fault | None]:
    """Read ``{"next": [fault, …], "always": fault}``.

    Raises:
        FaultError: a fault is malformed.
    """
    queued = [Fault.from_json(item) for item in rows(value.get("next"))]
    always = value.get("always")
    return queued, None if always is None else Fault.from_json(always)
