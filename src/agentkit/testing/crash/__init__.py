"""The crash harness: real workers, killed at every border and at random instants."""

from agentkit.testing.crash.borders import CrashingLLM, CrashingStore, ShortLease, crashing
from agentkit.testing.crash.loop import SCENARIO, Campaign, Death, NoProgress, Ordeal, WorkerFailed
from agentkit.testing.crash.plan import BORDERS, BorderLog, CrashPlan
from agentkit.testing.crash.processes import Ended, ForkServer, How, WorkerStuck, serve

__all__ = [
    "BORDERS",
    "SCENARIO",
    "BorderLog",
    "Campaign",
    "CrashPlan",
    "CrashingLLM",
    "CrashingStore",
    "Death",
    "Ended",
    "ForkServer",
    "How",
    "NoProgress",
    "Ordeal",
    "ShortLease",
    "WorkerFailed",
    "WorkerStuck",
    "crashing",
    "serve",
]
