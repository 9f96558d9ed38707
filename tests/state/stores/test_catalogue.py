"""Failures of other stores that ours do not share, by their numbers in the catalogue."""

import asyncio
import gzip
import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew, StoreMisused
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Message
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore, SqliteCheckpointStore
from agentkit.state.journal.codec import checksum
from agentkit.state.journal.journal import load
from agentkit.state.upkeep.retention import Policy, collect
from agentkit.testing.invariants import Evidence, check, read_rows
from agentkit.tools import tool
from tests.agents.kit import TASK, agent_of, call, calls, context, entries_of, then
from tests.state.stores.helpers import rows, started, summary
from tests.state.stores.test_clock_chaos import Skewed

CALLED: list[str] = []


class _Calls:
    """What a decoder that runs code would run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return CALLED.append, ("code of a record was run",)


HOSTILE = {
    "pickle": pickle.dumps(_Calls()),
    "a name to import": b'[1,"",1,"",0,{"type":"os.system","args":["true"]}]',
    "a constructor": b'{"lc":1,"type":"constructor","id":["os","system"],"kwargs":{"a":"true"}}',
    "deep nesting": b"[" * 200_000,
    "deep nesting in a place": b'[1,"",1,"",0,' + b'{"a":' * 100_000,
    "a bomb": gzip.compress(b"0" * 10_000_000),
    "a huge number": b"[" + b"9" * 1_000_000 + b"]",
    "no text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_f113_a_record_is_data_and_never_run(store: JournalPort, what: str) -> None:
    """F113: whoever may write to the store can at most make a run unreadable, and it says so."""
    body = HOSTILE[what]
    await store.append(
        "r", [Row(1, body, checksum(b"", body))], after=0, lease=None, summary=summary()
    )

    with pytest.raises((JournalDamaged, JournalTooNew)):
        await load(store, "r")
    assert [] == CALLED


@pytest.mark.parametrize(
    "text", ["x') OR 1=1 --", "%", "*", "{", "'; DROP TABLE agentkit_run; --", "\\", "$1"]
)
async def test_f114_a_filter_is_compared_and_never_a_pattern(store: JournalPort, text: str) -> None:
    """F114: text that means something to a query language finds what is called so, and no more."""
    await started(store, "other")
    await store.append("mine", rows(1), after=0, lease=None, summary=summary("parked", agent=text))

    assert ["mine"] == [one.run for one in (await store.list_runs(agent=text))[0]]
    assert [] == (await store.list_runs(agent=text + "x"))[0]
    assert [] == (await store.list_runs(status=text))[0]  # type: ignore[arg-type]  # on purpose
    with pytest.raises(StoreMisused):
        await store.list_runs(cursor=text)
    assert rows(1) == await store.read("other")


@tool(side_effecting=True)
async def send(item: str) -> str:
    """Send something."""
    return f"sent {item}"


@pytest.mark.postgres
async def test_f104_a_connection_that_is_closed_meanwhile_ends_no_run(postgres_dsn: str) -> None:
    """F104: during each model call all connections to the server are ended, as by a pooler's or a
    firewall's idle limit; with twenty runs on one store none notices.
    """
    ended = itertools.count()

    def answer(messages: object) -> Turn:
        with psycopg.connect(postgres_dsn, autocommit=True) as other:
            found = other.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
        assert found is not None
        for _ in range(found[0]):
            next(ended)
        return steps.turn(messages)

    steps = _Steps()
    store = PostgresCheckpointStore(postgres_dsn)
    agent = agent_of(send)

    async def run(number: int) -> str:
        ctx = context(FakeLLM(answer), store, run_id=f"r{number}")
        return (await agent.run(TASK, ctx)).output

    outputs = await asyncio.gather(*(run(number) for number in range(20)))

    assert ["done"] * 20 == list(outputs)
    assert next(ended) > 20
    for number in range(20):
        name = f"r{number}"
        assert [] == check(Evidence(run=name, rows=await read_rows(store, name)))
    await store.aclose()


class _Steps:
    """Two calls, then an answer, from the transcript."""

    def turn(self, messages: object) -> Turn:
        given = sum(message.role == "assistant" for message in messages)  # type: ignore[attr-defined]
        items = "ab"[given : given + 1]
        return calls(call("send", call_id=f"c{given}", item=items)) if items else Turn("done")


async def test_f110_all_stores_tell_the_same_story(store: JournalPort) -> None:
    """F110: the same run leaves the same facts and the same transcript, whatever keeps it."""
    llm = then([calls(call("send", item="a"), call("send", call_id="c2", item="b"))])

    result = await agent_of(send).run(TASK, context(llm, store))

    assert "done" == result.output
    kinds = [type(entry.body).__name__ for entry in await entries_of(store)]
    assert [
        "RunStarted",
        "LeaseTaken",
        "ModelAnswered",
        "ToolStarted",
        "ToolStarted",
        "ToolFinished",
        "ToolFinished",
        "StepCompleted",
        "ModelAnswered",
        "Finished",
    ] == kinds
    state = await load(store, "r")
    told = [(one.role, one.content) for one in state.main.transcript.view()]
    assert [("tool", "sent a"), ("tool", "sent b")] == told[2:4]


async def test_f099_each_step_costs_the_same_and_old_runs_give_their_space_back(
    tmp_path: Path,
) -> None:
    """F099: with 20 KB a result, a run of twice the steps takes twice the space; what is pruned is
    the disk's again, and the result stays.
    """
    path, sizes = tmp_path / "runs.db", [0]
    store = SqliteCheckpointStore(path)

    @tool(side_effecting=False)
    async def look(item: str) -> str:
        """Look something up."""
        return item * 20_000

    agent = agent_of(look, max_iterations=300)
    results = []
    for steps in (100, 200):

        def answer(messages: Sequence[Message], steps: int = steps) -> Turn:
            given = sum(message.role == "assistant" for message in messages)
            asks = calls(call("look", call_id=f"c{given}", item="x"))
            return asks if given < steps else Turn("done")

        llm = FakeLLM(answer)
        results.append(await agent.run(TASK, context(llm, store, run_id=f"r{steps}")))
        await store.aclose()
        sizes.append(path.stat().st_size)

    pruned = [one async for one in collect(store, Policy(0.0), clock=Skewed(lambda: 4e9))]
    given_back = await store.reclaim(limit_seconds=60.0)

    shorter, longer = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert 1.95 < longer / shorter < 2.05
    assert longer < 200 * 23_000
    assert {"r100", "r200"} == {one.run for one in pruned}
    assert given_back.freed_bytes >= sizes[2] - path.stat().st_size > 300 * 20_000
    for result in results:
        again = await agent.run(TASK, context(FakeLLM("x"), store, run_id=result.run_id))
        assert result == again
    await store.aclose()
