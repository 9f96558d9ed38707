"""Runs that come to their worker: one run at a time for any queue, or all due ones of a store."""

from agentkit.dispatch.driving import Driven, UnknownAgent, agents_by_name, drive_run
from agentkit.dispatch.events import WorkerEvent
from agentkit.dispatch.worker import Worker

__all__ = ["Driven", "UnknownAgent", "Worker", "WorkerEvent", "agents_by_name", "drive_run"]
