"""Server-sent events from bytes, with a limit. Pure.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

__all__ = ["MAX_EVENT_BYTES", "EventTooLarge", "SSEDecoder"]

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""No event, and no line, may be longer; the same limit as for an entry of the journal."""


class EventTooLarge(Exception):
    """A line or event grew beyond `MAX_EVENT_BYTES` without coming to its end."""


class SSEDecoder:
    """Turns chunks of bytes into the `data` of complete events.

    Event names, ids and retry times are left out: both providers say all in the data. What is not
    closed by an empty line when the stream ends is no event and is dropped, as the format says.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of every event that this chunk completes.

        Raises:
            EventTooLarge: the limit is passed.
        """
        if self._after_cr and chunk.startswith(b"\n"):  # the chunk border fell into a CR LF
            chunk = chunk[1:]
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        events = []
        for line in chunk.splitlines(keepends=True):
            if not line.endswith((b"\n", b"\r")):
                self._keep(line)
                continue
            complete = b"".join([*self._tail, line.rstrip(b"\r\n")])
            self._tail, self._tail_bytes = [], 0
            event = self._line(complete)
            if event is not None:
                events.append(event)
        return events

    def _keep(self, part: bytes) -> None:
        self._tail.append(part)
        self._tail_bytes += len(part)
        self._check(self._tail_bytes)

    def _line(self, line: bytes) -> str | None:
        if not line:
            if not self._data:
                return None
            event = b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._data_bytes = [], 0
            return event
        name, _, value = line.partition(b":")
        if name.removeprefix(b"\xef\xbb\xbf") == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value)
            self._check(self._data_bytes)
        return None

    def _check(self, size: int) -> None:
        if size > self._max:
            raise EventTooLarge(f"an event is longer than {self._max} bytes")
