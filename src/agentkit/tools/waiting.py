"""How a tool waits: for a person, for a time, for something that happens outside.

A tool that waits is left, and entered again from its first line once what it waits for has come.
What it has recorded by then, its waits among it, returns at once.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from agentkit.core.contracts.answers import schema_problem
from agentkit.core.contracts.errors import DeadlinePassed, InvalidSpec
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, JSONObject
from agentkit.core.contracts.values import encode_value, to_text

__all__ = ["AttemptLeft", "CanWait", "WaitFor", "Waited", "Waiter"]


_T = TypeVar("_T")


class AttemptLeft(BaseException):
    """Raised in the thread of a sync tool that waits: the attempt is over. Let it pass."""


class WaitFor(NamedTuple):
    """What a tool waits for.

    Args:
        kind: `input`, `time` or `event`.
        name: the wait's identity within the call.
        prompt: of `input`: what the person reads.
        schema: of `input`: JSON text of what an answer must be, or empty.
        event: of `event`: its name.
        seconds: how long; of `input` and `event` the deadline. `None`: for ever.
        until: of `time`: when, in ms since the epoch, instead of `seconds`.
        on_deadline: `fail` or `skip`.
    """

    kind: Literal["input", "time", "event"]
    name: str
    prompt: str = ""
    schema: str = ""
    event: str = ""
    seconds: float | None = None
    until: int | None = None
    on_deadline: str = ""


class Waited(NamedTuple):
    """How a wait ended: `how` is `answer`, `event`, `time` or `deadline`."""

    how: str
    value: JSON = None


Waiter: TypeAlias = "Callable[[WaitFor], Awaitable[Waited]]"
"""`waiter(wanted)`: the end of the wait of that name, once it is on record; before that it records
that the call waits, and does not return. Runs in the runtime's loop."""


class CanWait:
    """The waiting part of `ToolContext`."""

    waiter: Waiter
    _counts: Counter[str]

    async def ask(
        self,
        prompt: str,
        *,
        name: str | None = None,
        choices: Sequence[JSON] | None = None,
        schema: JSONObject | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline that outlives the process
        on_deadline: Literal["fail", "skip"] = "fail",
    ) -> JSON:
        """Ask a person, and wait for the answer; see the reference page "Waiting".

        Args:
            prompt: what the person reads.
            name: the question's name within the call, for a tool that asks in no fixed order; by
                default made of the prompt and its number.
            choices: what may be answered; by default anything, or what the `schema` allows.
            schema: JSON Schema of an answer: `type`, `enum`, `properties`, `required`,
                `additionalProperties`, `items`, and bounds.
            timeout: seconds until the deadline; by default none.
            on_deadline: `fail` raises `DeadlinePassed` then, `skip` returns `None`.

        Returns:
            The answer, as it was given: `False`, `0` and `""` are answers.

        Raises:
            DeadlinePassed: nobody answered in time.
            InvalidSpec: an empty prompt, or choices or schema that cannot be checked.
        """
        shown = to_text(str(prompt))
        if not shown.strip() or isinstance(choices, str):
            raise InvalidSpec("ask needs a prompt, and its choices are a list")
        if choices is not None and schema is not None:
            raise InvalidSpec("ask takes choices or a schema, not both")
        wanted: JSONObject = {"enum": list(choices)} if choices is not None else schema or {}
        problem = schema_problem(wanted)
        if problem or on_deadline not in {"fail", "skip"}:
            why = problem or f"on_deadline is 'fail' or 'skip', not {on_deadline!r}"
            raise InvalidSpec(f"ask: {why}")
        return await self._come(
            WaitFor(
                "input",
                self._named("ask", shown, name),
                prompt=shown,
                schema=encode_value(wanted) if wanted else "",
                seconds=_seconds(timeout),
                on_deadline=on_deadline,
            )
        )

    async def sleep(self, seconds: float, *, name: str | None = None) -> None:
        """Go on `seconds` later, however long that is: no process waits meanwhile.

        Raises:
            ValueError: `seconds` is no number, negative or infinite.
        """
        if not _is_finite(seconds) or seconds < 0:
            raise ValueError(f"sleep takes a number of seconds, not {seconds!r}")
        await self._come(
            WaitFor("time", self._named("sleep", f"{seconds:g}", name), seconds=seconds)
        )

    async def sleep_until(self, when: dt.datetime | float, *, name: str | None = None) -> None:
        """Go on at `when`: a `datetime` with a time zone, or seconds since the Unix epoch.

        Raises:
            ValueError: a `datetime` has no time zone, or it is no time.
        """
        if isinstance(when, dt.datetime):
            if when.tzinfo is None:
                raise ValueError(f"sleep_until takes a time with a time zone, not {when!r}")
            when = when.timestamp()
        if not _is_finite(when):
            raise ValueError(f"sleep_until takes a time, not {when!r}")
        named = self._named("until", f"{when:.3f}", name)
        await self._come(WaitFor("time", named, until=max(0, int(when * 1000))))

    async def wait_for(
        self,
        event: str,
        *,
        name: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline that outlives the process
        on_deadline: Literal["fail", "skip"] = "fail",
    ) -> JSON:
        """Wait for something that happens outside, told by `send_event`.

        An event that came before is taken at once; each is given to one wait, in their order.

        Args:
            event: its name.
            name: of the wait within the call; by default made of the event and its number.
            timeout: seconds until the deadline; by default none.
            on_deadline: `fail` raises `DeadlinePassed` then, `skip` returns `None`.

        Returns:
            The event's payload.

        Raises:
            DeadlinePassed: it did not come in time.
        """
        check_id(event, what="event name")
        if on_deadline not in {"fail", "skip"}:
            raise InvalidSpec(f"on_deadline is 'fail' or 'skip', not {on_deadline!r}")
        return await self._come(
            WaitFor(
                "event",
                self._named("event", event, name),
                event=event,
                seconds=_seconds(timeout),
                on_deadline=on_deadline,
            )
        )

    def ask_sync(
        self,
        prompt: str,
        *,
        name: str | None = None,
        choices: Sequence[JSON] | None = None,
        schema: JSONObject | None = None,
        timeout: float | None = None,
        on_deadline: Literal["fail", "skip"] = "fail",
    ) -> JSON:
        """`ask` for sync tools."""
        return self._wait_in_thread(
            "ask",
            self.ask(
                prompt,
                name=name,
                choices=choices,
                schema=schema,
                timeout=timeout,
                on_deadline=on_deadline,
            ),
        )

    def sleep_sync(self, seconds: float, *, name: str | None = None) -> None:
        """`sleep` for sync tools."""
        self._wait_in_thread("sleep", self.sleep(seconds, name=name))

    def sleep_until_sync(self, when: dt.datetime | float, *, name: str | None = None) -> None:
        """`sleep_until` for sync tools."""
        self._wait_in_thread("sleep_until", self.sleep_until(when, name=name))

    def wait_for_sync(
        self,
        event: str,
        *,
        name: str | None = None,
        timeout: float | None = None,
        on_deadline: Literal["fail", "skip"] = "fail",
    ) -> JSON:
        """`wait_for` for sync tools."""
        waiting = self.wait_for(event, name=name, timeout=timeout, on_deadline=on_deadline)
        return self._wait_in_thread("wait_for", waiting)

    async def _come(self, wanted: WaitFor) -> JSON:
        ended = await self.waiter(wanted)
        if ended.how == "deadline" and wanted.on_deadline == "fail":
            what = f"an answer to {wanted.prompt!r}" if wanted.kind == "input" else wanted.event
            raise DeadlinePassed(f"{what} did not come within {wanted.seconds:g} seconds")
        return ended.value

    def _named(self, kind: str, about: str, name: str | None) -> str:
        """The wait's name: its own, or its kind, what it is about, and its number."""
        if name is not None:
            return check_id(name, what="name of a wait")
        base = f"{kind}:{' '.join(about.split())[:80]}"
        self._counts[base] += 1
        return f"{base}#{self._counts[base]}"

    def _wait_in_thread(self, what: str, waiting: Coroutine[object, object, _T]) -> _T:
        raise NotImplementedError


def _seconds(timeout: float | None) -> float | None:
    if timeout is not None and (not _is_finite(timeout) or timeout <= 0):
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return timeout


def _is_finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]  # a number
