"""Runs that want a worker: due by the store's clock, of all scopes, unheld ones first."""

import msgspec
import pytest

from agentkit.core.contracts.heads import Claimable, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from tests.state.stores.helpers import TTL_SECONDS, rows, summary


def _due(at: int | None, *, agent: str = "agent") -> Summary:
    return msgspec.structs.replace(summary(agent=agent), due_at=at)


async def _noted(store: JournalPort, run: str, due: Summary) -> None:
    await store.append(run, rows(1), after=0, lease=None, summary=due)


async def test_runs_are_claimable_from_the_instant_at_which_they_are_due(
    store: JournalPort, clock: FakeClock
) -> None:
    """Earlier they are not; a run that waits for a note, or only was claimed, never is."""
    now_ms = round(clock.now() * 1000)
    await _noted(store, "later", _due(now_ms + 5_000))
    await _noted(store, "at once", _due(0))
    await _noted(store, "waits", _due(None))
    await store.acquire("claimed", "worker", TTL_SECONDS)
    await store.acquire("lapsed", "worker", 1.0)

    assert ["at once"] == [one.run for one in await store.claimable()]
    clock.advance(4.999)
    assert ["at once"] == [one.run for one in await store.claimable()]
    clock.advance(0.001)
    assert ["at once", "later"] == [one.run for one in await store.claimable()]


async def test_who_holds_a_due_run_is_told_and_comes_last(
    store: JournalPort, clock: FakeClock
) -> None:
    """A lease that has lapsed is no lease; released runs have no owner."""
    for run, ttl, at in (("held", TTL_SECONDS, 1), ("lapsed", 1.0, 2), ("released", 1.0, 3)):
        lease = await store.acquire(run, f"owner of {run}", ttl)
        await store.append(
            run, rows(1), after=0, lease=lease, summary=_due(at), release=run == "released"
        )
    clock.advance(1.0)

    assert [
        Claimable("", "lapsed", "agent", 2, "owner of lapsed"),
        Claimable("", "released", "agent", 3),
        Claimable("", "held", "agent", 1, "owner of held", held=True),
    ] == await store.claimable()


async def test_all_scopes_are_looked_at_longest_due_first(store: JournalPort) -> None:
    """From whichever scope it is asked; the limit cuts the end off."""
    views = [store.scoped(Scope(*parts)) for parts in (("t%/", "u/"), (), ("a",))]
    for view in views:
        for at in (3, 1, 2):
            await _noted(view, f"r{at}", _due(at))

    found = [(one.due_at, one.scope, one.run) for one in await views[0].claimable()]

    assert sorted(found) == found
    assert 9 == len(found)
    assert found[:4] == [(one.due_at, one.scope, one.run) for one in await store.claimable(limit=4)]
    assert Scope("t%/", "u/") in {Scope.of_key(scope) for _, scope, _ in found}


@pytest.mark.parametrize(
    ("agents", "found"), [(["a"], ["r1"]), (["c", "b"], ["r2"]), ([], []), (None, ["r1", "r2"])]
)
async def test_only_runs_of_agents_that_the_worker_has(
    store: JournalPort, agents: list[str] | None, found: list[str]
) -> None:
    """So that others' runs do not crowd its page out."""
    await _noted(store, "r1", _due(0, agent="a"))
    await _noted(store, "r2", _due(0, agent="b"))

    assert found == [one.run for one in await store.claimable(agents=agents)]


@pytest.mark.parametrize(
    "scope", [Scope(), Scope("a"), Scope("a", "b"), Scope("", "b"), Scope("a/b%2F", "%25/")]
)
def test_a_scope_is_found_by_its_key(scope: Scope) -> None:
    """The key says both parts, whatever characters they hold."""
    assert scope == Scope.of_key(scope.key)
