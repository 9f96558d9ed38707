"""Runs that want a worker: due by the store's clock, of all scopes, unheld ones first."""

from __future__ import annotations

import msgspec

from agentkit.core.contracts.heads import Claimable, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds
from agentkit.testing.conformance.materials import TTL_SECONDS, rows, summary

due = Subject("due", "journal", "due")


def _due(at: int | None, *, agent: str = "agent") -> Summary:
    return msgspec.structs.replace(summary(agent=agent), due_at=at)


async def _noted(store: JournalPort, run: str, made: Summary) -> None:
    await store.append(run, rows(1), after=0, lease=None, summary=made)


async def _runs(store: JournalPort) -> list[str]:
    return [one.run for one in await store.claimable()]


@due.check("JournalPort.claimable", "clock")
async def runs_are_claimable_from_the_instant_at_which_they_are_due(it: Bench) -> None:
    """A millisecond earlier they are not."""
    now_ms = round(it.clock.now() * 1000)
    await _noted(it.store, "later", _due(now_ms + 5_000))
    await _noted(it.store, "at once", _due(0))

    equal("what is due now", expected=["at once"], actual=await _runs(it.store))
    await it.let_pass(4.999)
    equal("a millisecond before", expected=["at once"], actual=await _runs(it.store))
    await it.let_pass(0.001)
    equal("at the instant", expected=["at once", "later"], actual=await _runs(it.store))


@due.check("JournalPort.claimable")
async def what_waits_or_was_only_claimed_is_not_due(it: Bench) -> None:
    """Nor is what was due and is not any more, or is not there any more."""
    await _noted(it.store, "due", _due(0))
    await _noted(it.store, "waits", _due(None))
    await _noted(it.store, "far ahead", _due(2**53 - 1))
    for run in ("was", "gone"):
        await _noted(it.store, run, _due(0))
    was = _due(None)
    await it.store.append("was", rows(2), after=1, lease=None, summary=was)
    await it.store.delete_run("gone")
    await it.store.acquire("claimed", "worker", TTL_SECONDS)
    await it.store.acquire("lapsed", "worker", 0.001)

    equal("what is due", expected=["due"], actual=await _runs(it.store))


@due.check("JournalPort.claimable")
async def who_holds_a_due_run_is_told_and_comes_last(it: Bench) -> None:
    """A lease that has lapsed is no lease; released runs have no owner."""
    store, brief = it.store, it.brief_seconds
    leases = []
    for run, at in (("held", 1), ("lapsed", 2), ("released", 3)):
        lease = await store.acquire(run, f"owner of {run}", brief)
        leases.append(lease)
        await store.append(
            run, rows(1), after=0, lease=lease, summary=_due(at), release=run == "released"
        )
    await it.outlive(*leases)
    await it.renew({"held": msgspec.structs.replace(leases[0], ttl_seconds=TTL_SECONDS)})

    found = await store.claimable()

    expected = [
        Claimable("", "lapsed", "agent", 2, "owner of lapsed"),
        Claimable("", "released", "agent", 3),
        Claimable("", "held", "agent", 1, "owner of held", held=True),
    ]
    equal("what is due", expected=expected, actual=found)


@due.check("JournalPort.claimable")
async def all_scopes_are_looked_at_longest_due_first(it: Bench) -> None:
    """From whichever scope it is asked; the limit cuts the end off."""
    views = [it.store.scoped(Scope(*parts)) for parts in (("t%/", "u/"), (), ("a",))]
    for view in views:
        for at in (3, 1, 2):
            await _noted(view, f"r{at}", _due(at))

    found = [(one.due_at, one.scope, one.run) for one in await views[0].claimable()]
    first = [(one.due_at, one.scope, one.run) for one in await it.store.claimable(limit=4)]

    equal("how many are due", expected=9, actual=len(found))
    equal("their order", expected=sorted(found), actual=found)
    equal("the first four", expected=found[:4], actual=first)
    scopes = {Scope.of_key(scope) for _, scope, _ in found}
    holds("the scope is found by its key", true=Scope("t%/", "u/") in scopes)


@due.check("JournalPort.claimable")
async def only_runs_of_agents_that_the_worker_has(it: Bench) -> None:
    """So that others' runs do not crowd its page out."""
    await _noted(it.store, "r1", _due(0, agent="a"))
    await _noted(it.store, "r2", _due(0, agent="b'%"))

    for agents, runs in (
        (["a"], ["r1"]),
        (["c", "b'%"], ["r2"]),
        ([], []),
        (["A", "b", "%"], []),
        (None, ["r1", "r2"]),
    ):
        found = [one.run for one in await it.store.claimable(agents=agents)]
        equal(f"what is due of {agents}", expected=runs, actual=found)
