"""What happens to a store while it is recorded: several runs at once, by the dice."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: a recording can be repeated
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

import apsw

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.errors import RunError
from agentkit.core.contracts.heads import Lease, Row, RunStatus, Summary
from agentkit.core.contracts.heartbeat import Renewable
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.contracts.types import Message, Scope, ToolCall, Usage
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeClock, FakeLLM, Turn
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.journal.codec import checksum
from agentkit.testing.disk.tape import Tape, TellingStore
from agentkit.tools import tool

__all__ = ["RUNS", "SCOPES", "Note", "Still", "Traffic", "agents_at_work", "scope_of"]

SCOPES: tuple[Scope, ...] = (Scope(), Scope(tenant="other"))
"""Run number n is in the scope n % 2."""

RUNS: tuple[str, ...] = tuple(f"run-{number}" for number in range(6))
"""The runs of a recording, whether agents drive them or dice."""

_TTL_SECONDS = 15.0
_STATUSES: tuple[RunStatus, ...] = ("running", "suspended", "parked")
_CHECKPOINTS = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")


def scope_of(run: str) -> Scope:
    """The scope that a run of a recording is in."""
    return SCOPES[int(run.rpartition("-")[2]) % len(SCOPES)]


class Note(NamedTuple):
    """An append without a lease, which its sender repeats until it is answered."""

    run: str
    row: Row
    after: int


class Traffic:
    """Rounds of operations on two stores of one file, as two processes would have them.

    Args:
        tape: what is recorded.
        chance: the dice.
    """

    def __init__(self, tape: Tape, chance: random.Random) -> None:
        self.tape = tape
        self.chance = chance
        self._sent: list[tuple[int, int, Note]] = []
        self._stores: list[TellingStore] = []
        self._leases: dict[str, Lease] = {}
        self._tips: dict[str, tuple[int, bytes]] = {}

    async def go(self, rounds: int, *, again: Sequence[Note] = ()) -> None:
        """Do `rounds` rounds, after a look at what is there and a repetition of `again`."""
        self._stores = [self.tape.store(), self.tape.store()]
        for run in RUNS:
            await self._look(run)
        self.tape.look()
        for note in again:
            await self._settled(self._send(note))
        for _ in range(rounds):
            await self._round()
        for store in self._stores:
            await store.aclose()

    async def _look(self, run: str) -> None:
        view = self._stores[0].scoped(scope_of(run))
        head = await view.head(run)
        if head is not None and head.seq:
            await view.read(run)
            self._tips[run] = (head.seq, head.check)

    async def _round(self) -> None:
        dice = self.chance.random()
        if dice < 0.12:  # noqa: PLR2004 - one round of eight
            self._checkpoint()
        elif dice < 0.16:  # noqa: PLR2004 - one round of 25
            await self._stores[self.chance.randrange(2)].aclose()
        elif dice < 0.2:  # noqa: PLR2004 - one round of 25
            self._renew()
        else:
            runs = self.chance.sample(RUNS, self.chance.choice((1, 1, 2, 3, 5)))
            await asyncio.gather(*(self._settled(self._act(run)) for run in runs))

    async def _settled(self, act: Awaitable[None]) -> None:
        try:
            await act
        except RunError as refused:
            self._leases.pop(refused.run_id, None)
            await self._look(refused.run_id)

    async def _act(self, run: str) -> None:
        store = self._stores[self.chance.randrange(2)].scoped(scope_of(run))
        if run not in self._leases:
            if run in self._tips and self.chance.random() < 0.3:  # noqa: PLR2004 - now and then
                seq, tip = self._tips[run]
                return await self._send(Note(run, self._row(seq, tip), seq))
            if run in self._tips and self.chance.random() < 0.2:  # noqa: PLR2004 - now and then
                del self._tips[run]
                await store.delete_run(run)
                return None
            self._leases[run] = await store.acquire(run, "worker", _TTL_SECONDS, supersede=None)
        seq, tip = self._tips.get(run, (0, b""))
        rows: list[Row] = []
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            rows.append(self._row(seq + len(rows), rows[-1].check if rows else tip))
        release = self.chance.random() < 0.15  # noqa: PLR2004 - now and then
        lease = self._leases[run]
        if release:
            del self._leases[run]
        await store.append(
            run, rows, after=seq, lease=lease, summary=self._summary(), release=release
        )
        self._tips[run] = (rows[-1].seq, rows[-1].check)
        return None

    async def _send(self, note: Note) -> None:
        begun = len(self.tape.recorder.events)
        store = self._stores[0].scoped(scope_of(note.run))
        await store.append(
            note.run, [note.row], after=note.after, lease=None, summary=self._summary()
        )
        self._tips[note.run] = (note.row.seq, note.row.check)
        self._sent.append((begun, len(self.tape.recorder.events), note))

    def open_at(self, event: int) -> list[Note]:
        """The notes that were on their way when that event happened."""
        return [note for begun, ended, note in self._sent if begun < event <= ended]

    def _row(self, after: int, before: bytes) -> Row:
        size = self.chance.choice((20, 60, 60, 200, 700, 5000))
        body = b'{"seq":%d,"text":"%s"}' % (
            after + 1,
            self.chance.randbytes(size // 2).hex().encode(),
        )
        return Row(after + 1, body, checksum(before, body))

    def _summary(self) -> Summary:
        usage = Usage(input_tokens=self.chance.randrange(1000), requests=1)
        status = self.chance.choice(_STATUSES)
        return Summary(status, agent="a", usage=usage, started_at=1000, updated_at=2000)

    def _renew(self) -> None:
        self.tape.begin()
        self._stores[0].renew(dict(self._leases))
        self.tape.commit()

    def _checkpoint(self) -> None:
        db = apsw.Connection(str(self.tape.path), flags=apsw.SQLITE_OPEN_READWRITE)
        if self.tape.synchronous != "FULL":
            db.execute(f"PRAGMA synchronous = {self.tape.synchronous}")
        db.execute(f"PRAGMA wal_checkpoint({self.chance.choice(_CHECKPOINTS)})").fetchall()
        db.close()


class Still:
    """A `HeartbeatPort` without a thread: no recorded run lasts as long as a lease."""

    def __init__(self, clock: ClockPort) -> None:
        self.clock = clock

    def watch(self, port: JournalPort, held: Renewable) -> None:
        """Do nothing."""

    def unwatch(self, held: Renewable) -> None:
        """Do nothing."""


class _Dice:
    """A seeded `ChancePort`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def token(self) -> str:
        """32 hex digits."""
        return self._chance.randbytes(16).hex()

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return self._chance.random()


@tool(side_effecting=True, idempotent=True, name="put")
async def _put(item: str) -> str:
    """Put an item."""
    return f"put {item}"


@tool(side_effecting=False, name="get")
async def _get(item: str) -> str:
    """Get an item."""
    return f"got {item}"


async def agents_at_work(
    store: JournalPort, chance: random.Random, *, runs: Sequence[str] = RUNS
) -> None:
    """All runs of a recording as real ones: an agent with two tools and three turns each."""
    clock = FakeClock()
    services = Services(
        invoker=Invoker(FakeLLM(_answer)),
        checkpointer=Checkpointer(port=store),
        clock=clock,
        chance=_Dice(chance),
        heartbeat=Still(clock),
    )
    agent = Agent("worker", prompt="Work.", cognition=ReActCognition([_put, _get]))
    contexts = [
        RunContext(correlation_id=run, scope=scope_of(run), services=services) for run in runs
    ]
    await asyncio.gather(*(agent.run("Do it.", context) for context in contexts))
    await store.aclose()


def _answer(messages: Sequence[Message]) -> Turn:
    turn = sum(message.role == "assistant" for message in messages)
    if turn < 3:  # noqa: PLR2004 - three turns of tools, then a text
        calls = (
            ToolCall(f"a{turn}", "put", {"item": f"{turn}"}),
            ToolCall(f"b{turn}", "get", {"item": f"{turn}"}),
        )
        return Turn("", tool_calls=calls[: 1 + turn % 2])
    return Turn("done")
