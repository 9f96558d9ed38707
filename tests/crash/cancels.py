"""A process that cancels a run, and may die while it does."""

import asyncio
from pathlib import Path

import msgspec

from agentkit.agents import cancel
from agentkit.core.contracts.types import JSONObject
from agentkit.testing.crash import CrashingStore, CrashPlan
from agentkit.testing.crash.scenario import Folder
from tests.crash.workers import RUN


class Job(msgspec.Struct, frozen=True):
    """Where the run is, and at which border to die."""

    folder: str
    at: int | None = None


def warm_up() -> None:
    """Load the store before any process is forked."""
    from agentkit.state.checkpoints.adapters import SqliteCheckpointStore

    assert SqliteCheckpointStore.__name__


def work(argument: JSONObject) -> None:
    """One cancel."""
    asyncio.run(_cancel(msgspec.convert(argument, Job)))


async def _cancel(job: Job) -> None:
    folder = Folder(Path(job.folder))
    store = CrashingStore(folder.store(), CrashPlan(job.at, log=folder.borders))
    await cancel(store, RUN, actor="ann", reason="no more")
    await store.aclose()
