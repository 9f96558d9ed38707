"""The store as one process sees it: the real memory store, behind a network that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import msgspec

from agentkit.core.contracts.errors import AgentkitError, StoreUnreachable
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import JournalPort
from agentkit.state.checkpoints.adapters import StoreWrapper
from agentkit.testing.simulation._process import Process
from agentkit.testing.simulation._weather import Fate, Weather
from agentkit.testing.simulation._witness import Witness

_T = TypeVar("_T")

PATIENCE_SECONDS = 4.0
"""How long a process waits for the store's answer before it takes it to be lost."""


class NetworkStore(StoreWrapper):
    """A process's connection to the store.

    A request travels, happens at the store in one instant, and its answer travels back. Requests
    may be lost, answers may be lost, requests may arrive twice, and later ones may overtake
    earlier ones, also ones that their sender has given up. What has left the process is carried
    out even if the process is killed meanwhile.

    Args:
        inner: the store itself.
        process: whose connection it is.
        weather: what becomes of its messages.
        witness: sees what happens at the store.
    """

    def __init__(
        self, inner: JournalPort, process: Process, *, weather: Weather, witness: Witness
    ) -> None:
        super().__init__(inner)
        self.process = process
        self.weather = weather
        self.witness = witness

    @property
    def location(self) -> str:
        """Another one for each process: so the process-wide table of drives, of which the real
        process has one, keeps those of simulated processes apart.
        """
        return f"simulated://{self.process.name}"

    async def acquire(
        self,
        run: str,
        owner: str,
        ttl_seconds: float,
        *,
        supersede: int | None = None,
        above: int = 0,
    ) -> Lease:
        """See `JournalPort.acquire`."""
        forward, process = super().acquire, self.process
        named = process.owner(owner)

        async def call() -> Lease:
            lease = await forward(run, named, ttl_seconds, supersede=supersede, above=above)
            self.witness.granted(lease, process)
            return lease

        return await self._ask("acquire", call)

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """See `JournalPort.append`."""
        forward, process = super().append, self.process
        rows = tuple(rows)

        async def call() -> Head:
            head = await forward(
                run, rows, after=after, lease=lease, summary=summary, release=release
            )
            if release and lease is not None:
                self.witness.released(lease, process)
            self.witness.appended(rows)
            return head

        what = "note" if lease is None else "append"
        if self.process.world.lines is not None:
            kinds = " ".join(msgspec.json.decode(row.body)[-1]["type"] for row in rows)
            released = ", release" if release else ""
            what = f"{what} after {after}: {kinds}{released}"
        return await self._ask(what, call)

    async def read(self, run: str, *, after: int = 0, limit: int = 10_000) -> list[Row]:
        """See `JournalPort.read`."""
        forward = super().read
        return await self._ask("read", lambda: forward(run, after=after, limit=limit))

    async def head(self, run: str) -> Head | None:
        """See `JournalPort.head`. An owner is shown as this process would see it."""
        forward = super().head
        head = await self._ask("head", lambda: forward(run))
        if head is None or not head.owner:
            return head
        owner = self.process.seen_owner(head.owner, self.witness.holder_of(head.owner))
        return msgspec.structs.replace(head, owner=owner)

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """See `OncePort.claim_value`."""
        forward = super().claim_value
        return await self._ask(
            f"claim {key}", lambda: forward(key, token=token, ttl_seconds=ttl_seconds)
        )

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """See `OncePort.settle_value`."""
        forward = super().settle_value
        return await self._ask(f"settle {key}", lambda: forward(key, token=token, value=value))

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        """Never called: the simulated heartbeat uses `send_renewal`."""
        raise AssertionError(f"a renewal of {list(leases)} that takes no time")

    def send_renewal(
        self, leases: dict[str, Lease], heard: Callable[[dict[str, Renewal] | None], None]
    ) -> None:
        """Send a renewal; `heard` gets the answer in a thread of the process, or `None`."""

        async def call() -> dict[str, Renewal]:
            renewals = self.inner.renew(leases)
            self.witness.renewed(leases, renewals)
            return renewals

        fate = self.weather.message(self.process)

        def answer(reply: _Reply[dict[str, Renewal]]) -> None:
            renewals = None if reply.error is not None else reply.value
            self.process.in_thread(fate.back_seconds, lambda: heard(renewals))

        self._carry("renew", call, fate, answer=answer)
        if fate.unheard(PATIENCE_SECONDS):
            self.process.in_thread(PATIENCE_SECONDS, lambda: heard(None))

    async def _ask(self, what: str, call: Callable[[], Coroutine[object, object, _T]]) -> _T:
        process = self.process
        process.must_live()
        process.say(f"asks the store: {what}")
        fate = self.weather.message(process)
        future: asyncio.Future[_Reply[_T]] = process.loop.create_future()

        def answer(reply: _Reply[_T]) -> None:
            process.world.after(fate.back_seconds, lambda: _hand_over(process, future, reply))

        self._carry(what, call, fate, answer=answer)
        if fate.unheard(PATIENCE_SECONDS):
            process.loop.call_later(PATIENCE_SECONDS, _give_up, future, what)
        reply = await future
        if reply.error is not None:
            raise reply.error
        return cast("_T", reply.value)

    def _carry(
        self,
        what: str,
        call: Callable[[], Coroutine[object, object, _T]],
        fate: Fate,
        *,
        answer: Callable[[_Reply[_T]], None],
    ) -> None:
        """Take a request to the store as often as it arrives, and the first answer back."""
        world, name = self.process.world, self.process.name
        answered = not fate.unheard(PATIENCE_SECONDS)

        def arrive() -> None:
            reply = _performed(call)
            world.say("store", f"{what} of {name}: {reply}")
            if answered:
                answer(reply)

        def arrive_again() -> None:
            world.say("store", f"{what} of {name}, a second time: {_performed(call)}")

        if not fate.request_lost:
            world.after(fate.there_seconds, arrive)
        if fate.again_seconds is not None:
            world.after(fate.again_seconds, arrive_again)


@dataclass(frozen=True, slots=True)
class _Reply(Generic[_T]):
    """What the store said: a value, or an error."""

    value: _T | None = None
    error: Exception | None = None

    def __str__(self) -> str:
        return "done" if self.error is None else f"{type(self.error).__name__}: {self.error}"


def _performed(call: Callable[[], Coroutine[object, object, _T]]) -> _Reply[_T]:
    """Let the store do it, in one instant."""
    try:
        call().send(None)
    except StopIteration as done:
        return _Reply(value=done.value)
    except AgentkitError as error:
        return _Reply(error=error)
    raise AssertionError("the store took time: only the network may")


def _hand_over(process: Process, future: asyncio.Future[_Reply[_T]], reply: _Reply[_T]) -> None:
    if not process.gone:
        process.loop.call_soon_threadsafe(_settle, future, reply)


def _give_up(future: asyncio.Future[_Reply[_T]], what: str) -> None:
    text = f"{what}: no answer for {PATIENCE_SECONDS:g} s; it may have been done"
    _settle(future, _Reply(error=StoreUnreachable(text)))


def _settle(future: asyncio.Future[_Reply[_T]], reply: _Reply[_T]) -> None:
    if not future.done():
        future.set_result(reply)
