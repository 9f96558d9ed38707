"""`ToolContext.once`: an effect at most once within a time, across calls, runs and workers."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidId, StoreMisused, StoreUnreachable
from agentkit.core.contracts.once import Claim
from agentkit.core.contracts.ports import Checkpoint, JournalPort
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
)
from agentkit.tools import Tool, ToolContext, tool
from tests.agents.kit import TASK, agent_of, bodies_of, call, calls, context, messages_of, then

T = TypeVar("T")
TTL_SECONDS = 60.0


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JournalPort]:
    """Each store that keeps values."""
    store: JournalPort = InMemoryCheckpointStore()
    if request.param == "sqlite":
        store = SqliteCheckpointStore(tmp_path / "runs.db")
    yield store
    await store.aclose()


class Mail:
    """An outside system without keys of its own."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.then: Callable[[], Awaitable[object]] | None = None

    async def send(self, to: str) -> dict[str, JSON]:
        """Send, and then perhaps fail."""
        self.sent.append(to)
        if self.then is not None:
            await self.then()
        return {"number": len(self.sent)}

    def tool(self, *, idempotent: bool = False) -> Tool:
        """A tool that sends what was not sent within the last minute."""

        @tool(side_effecting=True, idempotent=idempotent)
        async def send(to: str, context: ToolContext) -> JSON:
            return await context.once(f"mail:{to}", TTL_SECONDS, lambda: self.send(to))

        return send


async def results_of(store: JournalPort, run_id: str) -> list[str]:
    """What the model was told."""
    return [one.content for one in await messages_of(store, run_id) if one.role == "tool"]


async def test_another_run_gets_the_value_of_the_first(store: JournalPort) -> None:
    """Within the time the effect happens once for its key, and another key has its own."""
    mail = Mail()
    agent = agent_of(mail.tool())
    for run_id, to in (("r1", "ann"), ("r2", "ann"), ("r3", "bob")):
        llm = then(calls(call("send", to=to)))
        await agent.run(TASK, context(llm, store, run_id=run_id))

    assert ["ann", "bob"] == mail.sent
    assert ['{"number":1}'] == await results_of(store, "r1") == await results_of(store, "r2")
    assert ['{"number":2}'] == await results_of(store, "r3")


async def test_when_the_time_is_over_it_happens_again() -> None:
    """By the store's clock."""
    clock = FakeClock()
    store, mail = InMemoryCheckpointStore(clock=clock), Mail()
    agent = agent_of(mail.tool())
    for run_id, seconds in (("r1", TTL_SECONDS - 1), ("r2", 1.0), ("r3", 0.0)):
        await agent.run(TASK, context(then(calls(call("send", to="ann"))), store, run_id=run_id))
        clock.advance(seconds)

    assert ["ann", "ann"] == mail.sent


async def test_another_scope_has_keys_of_its_own(store: JournalPort) -> None:
    """The same key of another tenant is another effect."""
    mail = Mail()
    for tenant in ("a", "b"):
        llm = then(calls(call("send", to="ann")))
        ctx = context(llm, store, scope=Scope(tenant=tenant))
        await agent_of(mail.tool()).run(TASK, ctx)

    assert ["ann", "ann"] == mail.sent


async def test_parallel_calls_of_a_run_wait_for_one_another(store: JournalPort) -> None:
    """Two calls of one turn under one key: one effect, two results, no doubt."""
    mail = Mail()
    mail.then = lambda: asyncio.sleep(0)
    asked = [call("send", call_id=f"c{number}", to="ann") for number in range(2)]
    asked.append(call("send", call_id="c3", to="bob"))
    result = await agent_of(mail.tool()).run(TASK, context(then(calls(*asked)), store))

    assert "done" == result.output
    assert ["ann", "bob"] == sorted(mail.sent)


async def test_a_sync_tool_keeps_values_too(store: JournalPort) -> None:
    """`once_sync` runs the effect in the tool's own thread."""
    sent: list[str] = []

    @tool(side_effecting=True)
    def send(to: str, context: ToolContext) -> JSON:
        return context.once_sync(to, TTL_SECONDS, lambda: sent.append(to))

    for run_id in ("r1", "r2"):
        llm = then(calls(call("send", to="ann")))
        await agent_of(send).run(TASK, context(llm, store, run_id=run_id))

    assert ["ann"] == sent


@pytest.mark.parametrize("idempotent", [False, True])
async def test_an_effect_that_failed_in_the_middle_is_not_done_again(
    store: JournalPort, *, idempotent: bool
) -> None:
    """Nobody knows whether it took effect: the next run's call is in doubt; a person is asked."""
    mail = Mail()

    async def fail() -> None:
        raise ConnectionResetError

    mail.then = fail
    agent = agent_of(mail.tool(idempotent=idempotent))
    first = await agent.run(TASK, context(then(calls(call("send", to="ann"))), store, run_id="r1"))
    second = await agent.run(TASK, context(then(calls(call("send", to="ann"))), store, run_id="r2"))

    assert ["ann"] == mail.sent
    assert "done" == first.output
    assert ["ConnectionResetError"] == await results_of(store, "r1")
    assert second.suspended is not None
    [finished, *_] = await bodies_of(store, e.ToolFinished, "r2")
    assert "unknown" == finished.outcome
    assert "'mail:ann' was begun by somebody" in finished.content


class Lossy(StoreWrapper):
    """Does what is asked of it, and loses the first answer to each kind of request."""

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self.lost: list[str] = []

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Forward."""
        return self._lose(
            "claim", await super().claim_value(key, token=token, ttl_seconds=ttl_seconds)
        )

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Forward."""
        return self._lose("settle", await super().settle_value(key, token=token, value=value))

    def _lose(self, what: str, answer: T) -> T:
        if what not in self.lost:
            self.lost.append(what)
            raise StoreUnreachable("the answer was lost")
        return answer


async def test_a_lost_answer_of_the_store_is_asked_for_again(store: JournalPort) -> None:
    """The claim is the same one, and the effect happens once."""
    mail, lossy = Mail(), Lossy(store)
    result = await agent_of(mail.tool()).run(
        TASK, context(then(calls(call("send", to="ann"))), lossy)
    )

    assert ["claim", "settle"] == lossy.lost
    assert ["ann"] == mail.sent
    assert "done" == result.output


class Dead(StoreWrapper):
    """A store that cannot be reached for values."""

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Fail."""
        raise StoreMisused("gone")


async def test_an_error_of_the_store_is_no_outcome(store: JournalPort) -> None:
    """It stops the run before the effect, also where the tool catches it; the run is resumable."""
    mail = Mail()

    @tool(side_effecting=True)
    async def send(to: str, context: ToolContext) -> str:
        try:
            await context.once(to, TTL_SECONDS, lambda: mail.send(to))
        except StoreMisused:
            return "all is well"
        return "sent"

    with pytest.raises(StoreMisused):
        await agent_of(send).run(TASK, context(then(calls(call("send", to="ann"))), Dead(store)))

    assert [] == mail.sent
    assert [] == [one for one in await bodies_of(store, e.ToolFinished) if one.outcome == "ok"]


class Five:
    """Somebody's five-method store."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], Checkpoint] = {}

    async def save(self, checkpoint: Checkpoint) -> None:
        """Keep it."""
        self.kept[checkpoint.slot, checkpoint.version] = checkpoint

    async def latest(self, slot: str) -> Checkpoint | None:
        """The newest."""
        versions = await self.list_versions(slot)
        return self.kept[slot, versions[-1]] if versions else None

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        """One of them."""
        return self.kept.get((slot, version))

    async def list_versions(self, slot: str) -> list[int]:
        """All of them."""
        return sorted(version for kept, version in self.kept if kept == slot)

    async def delete(self, slot: str) -> None:
        """None of them."""
        for version in await self.list_versions(slot):
            del self.kept[slot, version]


@pytest.mark.filterwarnings("ignore::agentkit.state.checkpoints.shim.UnfencedStoreWarning")
async def test_a_store_that_keeps_no_values_says_so() -> None:
    """Five methods cannot; the effect does not happen, and the message names a store that can."""
    mail = Mail()
    with pytest.raises(StoreMisused, match="needs a store that keeps values"):
        await agent_of(mail.tool()).run(TASK, context(then(calls(call("send", to="ann"))), Five()))

    assert [] == mail.sent


@pytest.mark.parametrize("ttl_seconds", [0, -1, math.inf, math.nan, True, "60"])
async def test_a_time_that_is_none_is_refused(ttl_seconds: float) -> None:
    """It must be positive and end."""
    with pytest.raises(ValueError, match="positive number"):
        await ToolContext().once("k", ttl_seconds, lambda: 1)


async def test_a_key_is_checked_like_an_id() -> None:
    """An empty one names nothing."""
    with pytest.raises(InvalidId):
        await ToolContext().once("", 1.0, lambda: 1)


async def test_a_context_made_by_hand_keeps_values_in_memory() -> None:
    """`record` and `once` do not share their names."""
    context = ToolContext()
    runs: list[int] = []

    async def count() -> int:
        runs.append(1)
        return len(runs)

    assert [1, 1, 2] == [
        await context.once("k", 1.0, count),
        await context.once("k", 1.0, count),
        await context.record("k", count),
    ]
