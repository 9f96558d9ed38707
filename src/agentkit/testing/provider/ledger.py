"""What was asked, refused and bought: records in memory and a log that survives SIGKILL."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body

__all__ = ["Call", "Ledger", "read_log"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one of the two APIs.

    Args:
        number: 1, 2, 3, … in order of arrival.
        path: as requested, with its query.
        model: as requested; empty if the body was not readable.
        request: the parsed body; empty if it was not readable.
        digest: SHA-256 of the request's canonical form; empty if it was not readable.
        turn: how many assistant messages the history holds.
        status: the HTTP status that was sent; 0 while the request is open, or if none was sent.
        bought: the script was asked and its answer counted as sold, sent or not.
        held: what was to go out before a stall has been handed to the connection, and the rest is
            held back.
        answered: the whole answer was handed to the connection.
        ended: the provider has done with the request, one way or the other.
        refusal: the broken rule, if the request was refused.
        fault: the kind of fault that struck, if one did.
    """

    number: int
    path: str
    model: str = ""
    request: Body | None = None
    digest: str = ""
    turn: int = 0
    status: int = 0
    bought: bool = False
    held: bool = False
    answered: bool = False
    ended: bool = False
    refusal: Refusal | None = None
    fault: str | None = None

    @property
    def decided(self) -> bool:
        """Whether the provider knows what to send."""
        return self.bought or self.status != 0

    def to_json(self) -> Body:
        """Return the record as a JSON object."""
        refusal = self.refusal
        return {
            "number": self.number,
            "path": self.path,
            "model": self.model,
            "request": self.request,
            "digest": self.digest,
            "turn": self.turn,
            "status": self.status,
            "bought": self.bought,
            "held": self.held,
            "answered": self.answered,
            "ended": self.ended,
            "refusal": None
            if refusal is None
            else {"rule": refusal.rule, "message": refusal.message, "status": refusal.status},
            "fault": self.fault,
        }


class Ledger:
    """The records of a provider, safe to use from several threads.

    Args:
        log: a file to which two JSON lines are appended for each answer that is bought: `bought`
            before its first byte, `sent` after its last. Each line is on disk before the method
            returns; a line torn by a crash is closed off when the file is opened again.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._changed = threading.Condition()
        self._calls: list[Call] = []
        self._log = None if log is None else _open_log(log)

    @property
    def calls(self) -> list[Call]:
        """All calls in order of arrival."""
        with self._changed:
            return list(self._calls)

    def arrive(self, path: str) -> Call:
        """Open a record for a request."""
        with self._changed:
            call = Call(len(self._calls) + 1, path)
            self._calls.append(call)
            self._changed.notify_all()
            return call

    def update(self, call: Call) -> Call:
        """Put a newer version of a record in its place."""
        with self._changed:
            self._calls[call.number - 1] = call
            self._changed.notify_all()
            return call

    def bought(self, call: Call) -> Call:
        """Count an answer as sold, before its first byte goes out."""
        self._write("bought", call)
        return self.update(replace(call, bought=True))

    def sent(self, call: Call) -> Call:
        """Count a bought answer as fully handed over."""
        self._write("sent", call)
        return self.update(replace(call, answered=True, ended=True))

    def wait_until(
        self, condition: Callable[[list[Call]], bool], *, timeout_seconds: float
    ) -> bool:
        """Wait until a condition on the calls holds; return whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(list(self._calls)), timeout_seconds)

    def wait_for_calls(self, count: int, *, timeout_seconds: float) -> bool:
        """Wait until so many calls have been decided about; return whether they have."""
        return self.wait_until(
            lambda calls: sum(call.decided for call in calls) >= count,
            timeout_seconds=timeout_seconds,
        )

    def close(self) -> None:
        """Close the log."""
        with self._changed:
            if self._log is not None:
                os.close(self._log)
                self._log = None

    def _write(self, event: str, call: Call) -> None:
        line = {"event": event, "call": call.number, "turn": call.turn, "digest": call.digest}
        line |= {"path": call.path, "model": call.model}
        with self._changed:
            if self._log is not None:
                os.write(self._log, json.dumps(line).encode() + b"\n")
                os.fsync(self._log)


def read_log(path: Path) -> list[Body]:
    """Read the log of bought answers; a torn line is left out.

    Args:
        path: the file given to the provider as `log`.

    Returns:
        One object per line: `event` (`bought` or `sent`), `call`, `turn`, `digest`, `path` and
        `model`.
    """
    lines: list[Body] = []
    for raw in path.read_bytes().split(b"\n"):
        try:
            lines.append(json.loads(raw))
        except ValueError:
            continue
    return lines


def _open_log(path: Path) -> int:
    log = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    size = os.fstat(log).st_size
    if size and os.pread(log, 1, size - 1) != b"\n":
        os.write(log, b"\n")
    return log
