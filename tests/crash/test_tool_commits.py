"""The COMMIT of a transactional tool, or the answer to it, is lost: effect and outcome stay one."""

import asyncio
from collections.abc import Sequence

import pytest

from agentkit import Agent, Checkpointer, ReActCognition, RunContext, Services, ToolCall, tool
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StoreError
from agentkit.core.contracts.types import Message
from agentkit.core.runtime import Invoker
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import PostgresCheckpointStore
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.servers import LoseAnswer, LoseRequest, PostgresServer, Proxy
from agentkit.tools import Transaction

pytestmark = pytest.mark.postgres

COMMIT = b"COMMIT;"  # that of our transactions; migrations and the driver's own have no semicolon

STARTS = 3
"""A worker that lost its COMMIT asks the store; one that cannot goes, and the next carries on."""


@tool(side_effecting=True, transactional=True)
def book(transaction: Transaction) -> str:
    """Book a seat."""
    ((number,),) = transaction.execute("INSERT INTO public.booking DEFAULT VALUES RETURNING number")
    return f"seat {number!r}"


def think(messages: Sequence[Message]) -> Turn:
    """Two bookings, then the end."""
    answers = sum(one.role == "assistant" for one in messages)
    return Turn(tool_calls=(ToolCall(f"c{answers}", "book"),)) if answers < 2 else Turn("done")


async def finished(store: PostgresCheckpointStore, run: str) -> tuple[str, int]:
    """How the run ended, and how many workers that took."""
    agent = Agent("clerk", cognition=ReActCognition([book]))
    services = Services(invoker=Invoker(FakeLLM(think)), checkpointer=Checkpointer(port=store))
    for starts in range(1, STARTS + 1):
        try:
            result = await agent.run("Book.", RunContext(correlation_id=run, services=services))
        except StoreError:
            continue
        return result.stop_reason, starts
    return "given up", STARTS


async def recorded(store: PostgresCheckpointStore, run: str) -> list[object]:
    """What the journal says that the tool returned."""
    rows = await store.read(run)
    bodies = [entry.body for entry, _ in decode_rows(rows, after=0, before=b"", run_id=run)]
    return [body.content for body in bodies if isinstance(body, e.ToolFinished)]


@pytest.mark.parametrize("fault", [LoseAnswer, LoseRequest])
@pytest.mark.parametrize(
    "cuts", [pytest.param(4, id="few"), pytest.param(250, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(300)
async def test_a_commit_that_is_cut_off_happened_or_did_not(
    postgres_server: PostgresServer, fault: type[LoseAnswer | LoseRequest], cuts: int
) -> None:
    """Each run ends, with two seats booked and exactly those recorded, whichever of its commits
    is lost: before the server has it, or its answer.
    """
    database = postgres_server.new_database()
    table = "CREATE TABLE public.booking (number bigint GENERATED ALWAYS AS IDENTITY)"
    postgres_server.sql(table, database=database)
    ends: list[tuple[str, int]] = []
    with Proxy(postgres_server.port) as proxy:
        store = PostgresCheckpointStore(
            postgres_server.dsn(database, port=proxy.port) + "?sslmode=disable"
        )
        told: list[object] = []
        for number in range(cuts):
            proxy.fail_next(fault(request=COMMIT, skip=number % 2))
            ends.append(await finished(store, f"r{number}"))
            found = await recorded(store, f"r{number}")
            assert 2 == len(found), (number, found)
            told += found
        struck = proxy.struck[fault.__name__]
        await store.aclose()

    query = "SELECT string_agg('seat ' || number, ',' ORDER BY number) FROM public.booking"
    booked = await asyncio.to_thread(postgres_server.sql, query, database=database)
    postgres_server.drop_database(database)
    assert cuts == struck
    assert {"completed"} == {how for how, _ in ends}
    assert booked.split(",") == told
