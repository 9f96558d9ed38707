"""What becomes of a connection on which something failed, whatever the database is."""

import asyncio
from collections.abc import Sequence

import pytest

from agentkit.core.contracts.errors import NoteRefused, StoreUnreachable, TransactionOver
from agentkit.state.checkpoints.adapters._lanes import Outcome, Seat, ThreadLane, Work
from tests.state.stores.postgres_kit import Desk, desk

__all__ = ["desk"]


class Connections:
    """Connections that are numbers."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.made = 0

    def connect(self) -> int:
        """The next one."""
        self.made += 1
        return self.made

    def check(self, connection: int) -> None:
        """All are well."""

    def close(self, connection: int) -> None:
        """Note it."""
        self.closed.append(connection)


@pytest.mark.parametrize(
    ("error", "closed"),
    [
        (StoreUnreachable("gone"), [1]),
        (ValueError("a row that is none"), [1]),
        (KeyboardInterrupt(), [1]),
        (NoteRefused("it has ended", run_id="r"), []),
        (TransactionOver("it took too long"), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_connection_is_given_up_unless_what_was_asked_for_was_only_refused(
    error: BaseException, closed: list[int]
) -> None:
    """After any other error nobody knows what is still on its way."""
    connections = Connections()
    seat = Seat(connections)

    def fail(_: int) -> None:
        raise error

    with pytest.raises(type(error)):
        seat.use(fail)
    found = seat.use(lambda connection: connection)

    assert closed == connections.closed
    assert 1 + len(closed) == found


async def test_what_is_to_be_run_again_keeps_nobody_waiting() -> None:
    """Others come to their end meanwhile, and closing waits for it."""
    tries: list[str] = []

    def serve(_: int, works: Sequence[Work[int]]) -> list[Outcome]:
        names = [work(0) for work in works]
        tries.extend(names)
        return [Outcome(name, again=name == "slow" and tries.count(name) < 3) for name in names]

    lane = ThreadLane(Seat(Connections()), serve, "lane")
    slow = lane.submit(lambda _: "slow")
    first = await lane.submit(lambda _: "first")
    waits = not asyncio.isfuture(slow) or not slow.done()
    await lane.close()

    assert "first" == first
    assert waits
    assert "slow" == await slow
    assert 3 == tries.count("slow")


@pytest.mark.postgres
async def test_an_operation_that_failed_in_the_middle_leaves_no_answer_to_the_next(
    desk: Desk,
) -> None:
    """Its connection goes with what was still on its way."""
    store = desk.store()
    await store.delete_run("r")

    def fail(db: object) -> None:
        db.pgconn.send_query(b"SELECT 'of another'")  # type: ignore[attr-defined] # psycopg's
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store._engine.writer.submit(lambda session: session.run(fail, again=False))
    removed = await store.delete_run("r")
    await store.aclose()

    assert not removed
