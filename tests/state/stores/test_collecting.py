"""Old runs are removed: those that ended, first their entries, later what is left."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agentkit.agents.checking import DefinitionChangedWarning
from agentkit.agents.settling import settle_call
from agentkit.agents.stopping import cancel
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import StoreMisused
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, SqliteCheckpointStore
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal
from agentkit.state.upkeep import Policy, collect
from agentkit.tools import tool
from tests.agents.kit import agent_of, context, then
from tests.state.stores.helpers import rows, summary
from tests.state.stores.moving import SENDER, TASK, finished, interrupted, newer

DAY = 86_400.0
LATER = 100_000 * DAY
WEEK = Policy(7 * DAY)


async def _collected(
    store: JournalPort, policy: Policy, *, now: float, dry_run: bool = False
) -> dict[str, str]:
    """The verdict on each run, by scope and id."""
    found = collect(store, policy, clock=FakeClock(now=now), dry_run=dry_run)
    return {f"{one.scope}:{one.run}": one.verdict async for one in found}


async def _ended_at(store: JournalPort, run: str) -> float:
    head = await store.head(run)
    assert head is not None
    assert head.summary is not None
    return head.summary.updated_at / 1000


async def test_an_old_run_becomes_a_tombstone_and_an_older_one_is_deleted(
    store: JournalPort,
) -> None:
    """Its result stays in between, for whoever asks for the same run again."""
    await finished(store, "r")
    ended = await _ended_at(store, "r")
    both = Policy(7 * DAY, 14 * DAY)

    assert {":r": "young"} == await _collected(store, both, now=ended + 7 * DAY - 1)
    assert {":r": "entombed"} == await _collected(store, both, now=ended + 7 * DAY)
    assert [] == await store.read("r")
    llm = then([], "another answer")
    assert "done: r" == (await SENDER.run(TASK, context(llm, store, run_id="r"))).output
    assert {":r": "young"} == await _collected(store, both, now=ended + 14 * DAY - 1)
    assert {":r": "young"} == await _collected(store, WEEK, now=ended + 90_000 * DAY)
    assert {":r": "deleted"} == await _collected(store, both, now=ended + 14 * DAY)
    assert await store.head("r") is None
    assert {} == await _collected(store, both, now=ended + 14 * DAY)


@pytest.mark.parametrize("status", ["running", "suspended", "parked", "saved"])
async def test_runs_that_have_not_ended_stay_whatever_their_age(
    status: str, store: JournalPort
) -> None:
    """A human may take a year to answer."""
    lease = await store.acquire("r", "worker", 15.0)
    open_ = msgspec.structs.replace(summary(), status=status)
    await store.append("r", rows(1, 3), after=0, lease=lease, summary=open_, release=True)

    policy = Policy(0, 0)
    assert {":r": "open"} == await _collected(store, policy, now=LATER)
    assert rows(1, 3) == await store.read("r")


async def test_a_run_that_ended_with_a_call_in_doubt_stays(
    store: JournalPort, clock: FakeClock
) -> None:
    """Its entries are all that tells of an effect that may have happened."""
    await interrupted(store, "r")
    clock.advance(20)
    await cancel(store, "r", clock=clock)

    assert {":r": "in_doubt"} == await _collected(store, Policy(0), now=LATER)
    assert {":r": "in_doubt"} == await _collected(store, Policy(0), now=LATER, dry_run=True)
    assert await store.read("r")
    head = await store.head("r")
    assert head is not None
    assert head.summary is not None
    assert ("cancelled", ("send",)) == (head.summary.status, head.summary.in_doubt)
    known = Policy(0, in_doubt=("r",))
    assert {":r": "entombed"} == await _collected(store, known, now=LATER)
    assert [] == await store.read("r")


async def test_a_run_whose_model_was_told_of_a_call_in_doubt_stays(
    store: JournalPort, clock: FakeClock
) -> None:
    """That it went on to its end without knowing makes nothing known."""

    @tool(side_effecting=True, on_in_doubt="tell_model")
    async def send(item: str) -> str:
        """Send something."""
        return f"sent {item}"

    await interrupted(store, "r")
    clock.advance(20)
    with pytest.warns(DefinitionChangedWarning):
        result = await agent_of(send).run(TASK, context(then([], "done"), store, run_id="r"))

    assert "done" == result.output
    assert {":r": "in_doubt"} == await _collected(store, Policy(0), now=LATER)
    assert await store.read("r")


async def test_a_run_whose_call_in_doubt_was_settled_goes_like_any_other(
    store: JournalPort, clock: FakeClock
) -> None:
    """A person said how it ended before the run was cancelled."""
    await interrupted(store, "r")
    clock.advance(20)
    await settle_call(store, "r", "1.0", Decision("done", "sent"), clock=clock)
    await cancel(store, "r", clock=clock)

    assert {":r": "entombed"} == await _collected(store, Policy(0), now=LATER)


async def test_what_cannot_be_read_is_not_garbage() -> None:
    """A damaged run, or one of a newer release, says that it has ended and stays all the same."""
    store = InMemoryCheckpointStore()
    await finished(store, "damaged")
    await finished(store, "good")
    await newer(store, "newer")
    data = store._data.runs
    row = data["", "damaged"].rows[2]
    data["", "damaged"].rows[2] = Row(row.seq, b"?" + row.body, row.check)
    head = data["", "newer"].head
    data["", "newer"].head = msgspec.structs.replace(head, summary=summary("done"))

    verdicts = await _collected(store, Policy(0, 0), now=LATER)

    assert {":damaged": "unreadable", ":newer": "unreadable", ":good": "entombed"} == verdicts
    assert await store.read("damaged")
    assert await store.read("newer")


async def test_the_latest_of_each_scope_stay_whole(store: JournalPort) -> None:
    """Counted by when they began, each scope for itself."""
    for scope in (Scope(), Scope("acme")):
        for number in range(3):
            lease = await store.scoped(scope).acquire(f"r{number}", "worker", 15.0)
            state = RunState(f"r{number}")
            clock = FakeClock(now=1_000.0 + number)
            journal = Journal(store.scoped(scope), state, clock=clock, lease=lease)
            begun = e.RunStarted("task", "worker", "fake", "", (), "", "nonce")
            await journal.commit(
                lambda _, begun=begun: [begun, e.Finished("x")],  # type: ignore[misc]
                lane="",
                release=lambda _: True,
            )

    policy = Policy(DAY, keep_latest=2)

    verdicts = await _collected(store, policy, now=LATER)
    assert {"entombed"} == {verdicts[f"{scope}:r0"] for scope in ("", "acme")}
    assert ["latest"] * 4 == [one for one in verdicts.values() if one != "entombed"]
    again = await _collected(store, policy, now=LATER)
    assert again == {**verdicts, ":r0": "young", "acme:r0": "young"}


async def test_a_dry_run_says_the_same_and_does_nothing(store: JournalPort) -> None:
    """What would be removed is still there."""
    await finished(store, "r")
    before = await store.read("r")

    assert {":r": "entombed"} == await _collected(store, Policy(0), now=LATER, dry_run=True)
    assert before == await store.read("r")
    assert {":r": "entombed"} == await _collected(store, Policy(0), now=LATER)
    policy = Policy(0, 0)
    assert {":r": "deleted"} == await _collected(store, policy, now=LATER, dry_run=True)
    assert await store.head("r") is not None


async def test_a_run_that_somebody_holds_stays(store: JournalPort) -> None:
    """Whoever reads it as a tombstone, or before it becomes one, is left alone."""
    await finished(store, "r")
    await store.acquire("r", "somebody", 15.0)

    assert {":r": "in_use"} == await _collected(store, Policy(0, 0), now=LATER)
    assert await store.read("r")


async def test_one_tenant_can_be_meant_alone(store: JournalPort) -> None:
    """All users of it, and nobody else."""
    for scope in (Scope(), Scope("acme"), Scope("acme", "ann"), Scope("acm")):
        await finished(store, "r", scope=scope)

    verdicts = await _collected(store, Policy(0, tenant="acme"), now=LATER)

    assert {"acme:r": "entombed", "acme/ann:r": "entombed"} == verdicts
    assert await store.read("r")


@pytest.mark.parametrize("policy", [Policy(-1), Policy(7, 6), Policy(7, keep_latest=-1)])
async def test_a_policy_that_contradicts_itself_is_refused(policy: Policy) -> None:
    """Before anything is looked at."""
    with pytest.raises(StoreMisused):
        await _collected(InMemoryCheckpointStore(), policy, now=0)


async def test_space_is_given_back(sqlite: SqliteCheckpointStore) -> None:
    """The file is smaller by what was removed, and what is left is as it was."""
    for number in range(40):
        lease = await sqlite.acquire(f"big{number}", "worker", 15.0)
        body = b'"' + b"x" * 20_000 + b'"'
        row = [Row(1, body, b"12345678")]
        done = summary("done")
        await sqlite.append(f"big{number}", row, after=0, lease=lease, summary=done, release=True)
    await finished(sqlite, "r")
    kept = await sqlite.read("r")
    await sqlite.aclose()
    file = Path(sqlite.location.removeprefix("sqlite:///"))
    before = file.stat().st_size  # noqa: ASYNC240 - nobody else waits
    for number in range(40):
        await sqlite.delete_run(f"big{number}")

    space = await sqlite.reclaim(limit_seconds=30.0)

    assert "" == space.note
    assert 700_000 < before - file.stat().st_size  # noqa: ASYNC240 - as above
    assert 700_000 < space.freed_bytes
    assert kept == await sqlite.read("r")
    assert {":r": "entombed"} == await _collected(sqlite, Policy(0), now=LATER)
    again = await sqlite.reclaim(limit_seconds=30.0)
    assert again.freed_bytes < 100_000


async def test_somebody_who_reads_or_writes_keeps_space_from_being_given_back(
    sqlite: SqliteCheckpointStore,
) -> None:
    """It is told, it is no error, and nothing is harmed."""
    import apsw

    await finished(sqlite, "r")
    await finished(sqlite, "s")
    await sqlite.delete_run("s")
    other = apsw.Connection(sqlite.location.removeprefix("sqlite:///"))
    other.execute("BEGIN IMMEDIATE")
    other.execute("SELECT count(*) FROM agentkit_run").fetchall()

    space = await sqlite.reclaim(limit_seconds=0.05)

    other.execute("ROLLBACK")
    other.close()
    assert space.note
    assert await sqlite.read("r")
