"""Runs at which several workers have died are driven by themselves."""

from collections.abc import Callable, Collection, Sequence

from agentkit.agents import submit
from agentkit.core.contracts.heads import Claimable
from agentkit.dispatch.picking import Key, key_of
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


def _of(*due: Claimable, free: int = 4) -> Callable[[Collection[Key]], Sequence[Claimable]]:
    """Chooses the first ones of these."""
    return lambda without: [one for one in due if key_of(one) not in without][:free]


def _runs(chosen: Sequence[Claimable]) -> list[str]:
    return [one.run for one in chosen]


async def test_a_suspect_is_begun_alone_and_what_is_not_one_is_not() -> None:
    """The first takeovers may have been somebody else's fault. Suspects come last."""
    store = InMemoryCheckpointStore()
    twice = await _died(store, "twice", takeovers=SUSPECT_RECOVERIES)
    again = await _died(store, "again", takeovers=SUSPECT_RECOVERIES)
    once = await _died(store, "once", takeovers=SUSPECT_RECOVERIES - 1)
    new = Claimable("", "new", "worker", 0)

    others = await Suspects(store).apart(_of(once, twice, new), driven=())
    alone = await Suspects(store).apart(_of(twice, again), driven=())

    assert ["once", "new"] == _runs(others)
    assert ["twice"] == _runs(alone)


async def test_a_suspect_that_waits_for_its_turn_keeps_no_other_run() -> None:
    """It is not begun beside what is driven; others are, however many suspects are due before."""
    store = InMemoryCheckpointStore()
    suspects = [
        await _died(store, f"s{number}", takeovers=SUSPECT_RECOVERIES) for number in range(3)
    ]
    new, busy = Claimable("", "new", "worker", 0), [("", "busy")]

    beside = await Suspects(store).apart(_of(*suspects, new, free=2), driven=busy)
    waits = await Suspects(store).apart(_of(*suspects, free=2), driven=busy)

    assert (["new"], []) == (_runs(beside), _runs(waits))


async def test_nothing_is_begun_beside_a_suspect_until_it_gets_further() -> None:
    """From then on it is a run like any other."""
    store = InMemoryCheckpointStore()
    twice = await _died(store, "twice", takeovers=SUSPECT_RECOVERIES)
    new = Claimable("", "new", "worker", 0)
    suspects, driven = Suspects(store), [key_of(twice)]
    await suspects.apart(_of(twice), driven=())

    beside = await suspects.apart(_of(new), driven=driven)
    lease = await store.acquire("twice", "its worker", 15.0, supersede=(await _epoch(store)))
    head = await store.head("twice")
    assert head is not None
    assert head.summary is not None
    await store.append("twice", [], after=head.seq, lease=lease, summary=head.summary)
    further = await suspects.apart(_of(new), driven=driven)

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
    await suspects.apart(_of(twice), driven=())

    assert ["new"] == _runs(await suspects.apart(_of(new), driven=()))
