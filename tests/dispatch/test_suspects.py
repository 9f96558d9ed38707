"""Runs at which several workers have died are driven by themselves."""

from collections.abc import Sequence

from agentkit.agents import submit
from agentkit.core.contracts.heads import Claimable
from agentkit.dispatch.picking import key_of
from agentkit.dispatch.suspects import SUSPECT_RECOVERIES, Suspects
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from tests.agents.kit import TASK


async def _died(store: InMemoryCheckpointStore, run: str, *, takeovers: int) -> Claimable:
    """A run that so many workers have taken over, the last of whom is dead, too."""
    await submit(store, run, TASK, agent="worker")
    for number in range(takeovers + 1):
        head = await store.head(run)
        assert head is not None
        await store.acquire(run, f"worker {number}", 15.0, supersede=head.epoch)
    return Claimable("", run, "worker", 0, f"worker {takeovers}")


def _runs(chosen: Sequence[Claimable]) -> list[str]:
    return [one.run for one in chosen]


async def test_a_suspect_is_begun_alone_and_what_is_not_one_is_not() -> None:
    """The first takeovers may have been somebody else's fault."""
    store = InMemoryCheckpointStore()
    twice = await _died(store, "twice", takeovers=SUSPECT_RECOVERIES)
    once = await _died(store, "once", takeovers=SUSPECT_RECOVERIES - 1)
    new = Claimable("", "new", "worker", 0)

    others = await Suspects(store).apart([once, new], driven=())
    alone = await Suspects(store).apart([once, twice, new], driven=())

    assert ["once", "new"] == _runs(others)
    assert ["twice"] == _runs(alone)


async def test_a_suspect_waits_until_nothing_else_is_driven() -> None:
    """And nothing new is begun meanwhile, so that its turn comes."""
    store = InMemoryCheckpointStore()
    twice = await _died(store, "twice", takeovers=SUSPECT_RECOVERIES)
    new = Claimable("", "new", "worker", 0)

    waits = await Suspects(store).apart([new, twice], driven=[("", "busy")])

    assert [] == waits


async def test_nothing_is_begun_beside_a_suspect_until_it_gets_further() -> None:
    """From then on it is a run like any other."""
    store = InMemoryCheckpointStore()
    twice = await _died(store, "twice", takeovers=SUSPECT_RECOVERIES)
    new = Claimable("", "new", "worker", 0)
    suspects, driven = Suspects(store), [key_of(twice)]
    await suspects.apart([twice], driven=())

    beside = await suspects.apart([new], driven=driven)
    lease = await store.acquire("twice", "its worker", 15.0, supersede=(await _epoch(store)))
    head = await store.head("twice")
    assert head is not None
    assert head.summary is not None
    await store.append("twice", [], after=head.seq, lease=lease, summary=head.summary)
    further = await suspects.apart([new], driven=driven)

    assert [] == beside
    assert ["new"] == _runs(further)


async def _epoch(store: InMemoryCheckpointStore) -> int:
    head = await store.head("twice")
    return 0 if head is None else head.epoch


async def test_other_runs_are_begun_again_once_a_suspect_is_over() -> None:
    """However it ended."""
    store = InMemoryCheckpointStore()
    twice = await _died(store, "twice", takeovers=SUSPECT_RECOVERIES)
    new = Claimable("", "new", "worker", 0)
    suspects = Suspects(store)
    await suspects.apart([twice], driven=())

    assert ["new"] == _runs(await suspects.apart([new], driven=()))
