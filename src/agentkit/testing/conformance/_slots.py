"""The five methods: numbered checkpoints by slot."""

from __future__ import annotations

from agentkit.core.contracts.errors import RunInUse, VersionTaken
from agentkit.core.contracts.ports import Checkpoint, CheckpointStatus
from agentkit.core.contracts.types import JSON, Scope
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds, refused
from agentkit.testing.conformance.materials import rows, started, summary

slots = Subject("slots", "slots")

_SLOT = "r:agent:a"
_STATE: dict[str, JSON] = {
    "nul": "a\x00b",
    "emoji": "😀 \u202eback",
    "numbers": [0, -1, 2**53, 1.5, 1e300, None, True, False],
    "deep": {"a": [{"b": [[], {}]}]},
    "": "'; DROP TABLE x --",
}


def _checkpoint(version: int, slot: str = _SLOT, *, state: JSON = None) -> Checkpoint:
    return Checkpoint(
        slot=slot,
        version=version,
        status=CheckpointStatus.RUNNING,
        state={"version": version} if state is None else state,
        iteration=version * 2,
        created_at=1_700_000_000.5 + version,
    )


@slots.check("CheckpointPort.save")
async def what_is_saved_comes_back_whole(it: Bench) -> None:
    """Every field, and any JSON as state, by version and as the latest."""
    saved = _checkpoint(1, state=_STATE)
    await it.port.save(saved)

    equal("by its version", expected=saved, actual=await it.port.at_version(_SLOT, 1))
    equal("as the latest", expected=saved, actual=await it.port.latest(_SLOT))


@slots.check("CheckpointPort.list_versions")
async def versions_grow_and_are_all_there(it: Bench) -> None:
    """They are listed in order of their numbers, 10 after 9, and each is found by its own."""
    for version in range(1, 13):
        await it.port.save(_checkpoint(version))

    listed = await it.port.list_versions(_SLOT)
    latest = await it.port.latest(_SLOT)

    equal("the versions", expected=list(range(1, 13)), actual=listed)
    equal("the latest", expected=_checkpoint(12), actual=latest)
    for version in (1, 9, 10, 12):
        found = await it.port.at_version(_SLOT, version)
        equal(f"version {version}", expected=_checkpoint(version), actual=found)


@slots.check("CheckpointPort")
async def what_is_missing_is_no_error(it: Bench) -> None:
    """A slot or version that is not there is None, or an empty list; deleting it is nothing."""
    equal("latest of no slot", expected=None, actual=await it.port.latest(_SLOT))
    equal("a version of no slot", expected=None, actual=await it.port.at_version(_SLOT, 1))
    equal("versions of no slot", expected=[], actual=await it.port.list_versions(_SLOT))
    await it.port.delete(_SLOT)
    await it.port.save(_checkpoint(1))

    for version in (0, 2, -1):
        found = await it.port.at_version(_SLOT, version)
        equal(f"version {version} of a slot at 1", expected=None, actual=found)
    other = await it.port.latest("r:agent:b")
    equal("latest of another slot", expected=None, actual=other)


@slots.check("CheckpointPort.save")
async def a_version_is_taken_once(it: Bench) -> None:
    """Saving a version that the slot has already is an error, and what was saved first stays."""
    await it.port.save(_checkpoint(1))
    again = it.port.save(_checkpoint(1, state={"other": True}))
    await refused(Exception, again, what="saving version 1 a second time")

    equal("version 1", expected=_checkpoint(1), actual=await it.port.at_version(_SLOT, 1))
    equal("the versions", expected=[1], actual=await it.port.list_versions(_SLOT))


@slots.check("CheckpointPort")
async def slots_are_apart(it: Bench) -> None:
    """Runs and producers with like names have checkpoints of their own."""
    names = ["r:agent:a", "r:agent:A", "r:agent:b", "s:agent:a", "r2", "R", "ä", "../x", "*"]
    for number, slot in enumerate(names):
        await it.port.save(_checkpoint(1, slot, state={"number": number}))

    for number, slot in enumerate(names):
        found = await it.port.latest(slot)
        expected = _checkpoint(1, slot, state={"number": number})
        equal(f"latest of {slot!r}", expected=expected, actual=found)


@slots.check("CheckpointPort.delete")
async def a_deleted_slot_is_forgotten(it: Bench) -> None:
    """All its versions go, other runs stay, and the slot may begin again."""
    for version in (1, 2, 3):
        await it.port.save(_checkpoint(version))
    await it.port.save(_checkpoint(1, "s:agent:a"))

    await it.port.delete(_SLOT)

    equal("its latest", expected=None, actual=await it.port.latest(_SLOT))
    equal("its versions", expected=[], actual=await it.port.list_versions(_SLOT))
    equal("the other run's", expected=[1], actual=await it.port.list_versions("s:agent:a"))
    await it.port.save(_checkpoint(1))
    equal("its latest then", expected=_checkpoint(1), actual=await it.port.latest(_SLOT))


@slots.check("CheckpointPort.save", "journal")
async def of_a_journal_versions_only_grow(it: Bench) -> None:
    """A version below the newest is `VersionTaken` as well."""
    await it.store.save(_checkpoint(3))

    for version in (1, 2, 3):
        attempt = it.store.save(_checkpoint(version))
        error = await refused(VersionTaken, attempt, what=f"saving version {version} after 3")
        equal("the run that the error names", expected="r", actual=error.run_id)
    await it.store.save(_checkpoint(7))

    equal("the versions", expected=[3, 7], actual=await it.store.list_versions(_SLOT))


@slots.check("CheckpointPort.save", "journal")
async def checkpoints_are_entries_of_their_run(it: Bench) -> None:
    """A saved slot is a run: it has a head and a place in the list, in its scope alone."""
    view = it.store.scoped(Scope("a"))
    await view.save(_checkpoint(1))

    listed, _ = await view.list_runs()
    found = [(one.run, one.summary.status, one.seq) for one in listed]
    equal("runs, statuses, entries", expected=[("r", "saved", 1)], actual=found)
    holds("the other scope has none", true=await it.store.latest(_SLOT) is None)
    await view.delete(_SLOT)
    equal("the run's head then", expected=None, actual=await view.head("r"))


@slots.check("CheckpointPort.delete", "journal")
async def a_run_that_is_held_keeps_its_slots(it: Bench) -> None:
    """Deleting a slot while a worker has the run raises what `delete_run` raises."""
    lease = await started(it.store, "other")
    await it.store.save(_checkpoint(1))
    held = await it.store.acquire("r", "worker", lease.ttl_seconds)

    await refused(RunInUse, it.store.delete(_SLOT), what="deleting the slot of a run that is held")
    await it.store.append("r", [], after=1, lease=held, summary=summary(), release=True)

    await it.store.delete(_SLOT)
    equal("the slot then", expected=None, actual=await it.store.latest(_SLOT))
    equal("the other run", expected=rows(1), actual=await it.store.read("other"))
