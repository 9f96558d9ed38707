"""One run, one tenure: the door for whatever decides which run is driven where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import msgspec

from agentkit.agents import Agent, AgentResult
from agentkit.core.contracts.errors import InvalidSpec, RunError, RunNotFound
from agentkit.core.contracts.heads import Lease, RunStatus
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import RunContext, Services
from agentkit.state.checkpoints import Checkpointer

__all__ = ["Driven", "UnknownAgent", "agents_by_name", "drive_run"]

_NO_SCOPE = Scope()


class UnknownAgent(RunError):
    """The run belongs to an agent that this worker does not have. Attribute: `agent`."""

    def __init__(self, message: str, *, run_id: str, agent: str) -> None:
        super().__init__(message, run_id=run_id)
        self.agent = agent


class Driven(msgspec.Struct, frozen=True):
    """How far a run came.

    Args:
        run_id: the run.
        agent: whose run it is.
        result: as `Agent.run` would give it; of a run that is suspended or parked, what it waits
            for.
        worked: whether there was anything to do for it.
    """

    run_id: str
    agent: str
    result: AgentResult
    worked: bool


def agents_by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    """The agents by all that their runs may call them: the name, and the reference if there is one.

    Raises:
        InvalidSpec: there is none, or two go by one name.
    """
    known: dict[str, Agent] = {}
    for agent in agents:
        for name in {agent.name, agent.reference} - {""}:
            if known.setdefault(name, agent) is not agent:
                raise InvalidSpec(f"two agents go by the name {name!r}; a run could not tell them")
    if not known:
        raise InvalidSpec("a worker needs an agent")
    return known


async def drive_run(
    run_id: str,
    *,
    agents: Mapping[str, Agent],
    store: JournalPort,
    scope: Scope = _NO_SCOPE,
    services: Services | None = None,
    on_claimed: Callable[[Lease], None] = lambda _: None,
) -> Driven:
    """Take the run, whatever state it is in; go on with it until it ends, is parked, or waits for
    something; and give it back. One that wants nothing of a worker is left as it is.

    Called again, also at the same time from elsewhere, it goes on from what is recorded: a queue
    that delivers a run twice does no harm. Nothing of the run passes through the caller, so what a
    queue or an engine keeps of it is its id. Cancelling the call, or `drain`, leaves the run
    resumable.

    Args:
        run_id: the run.
        agents: by name, see `agents_by_name`.
        store: where it is.
        scope: whose it is.
        services: what it works with; the checkpointer is made of `store`.
        on_claimed: called with the lease once the run is this worker's.

    Raises:
        RunNotFound: there is no such run.
        UnknownAgent: it is a run of an agent that is not among these; nothing was done.
        RunInUse: another worker holds it.
        LeaseLost, RunInterrupted, StoreError and others: as `Agent.resume`; the run is resumable.
    """
    agent, before = await _agent_of(run_id, agents, store.scoped(scope))
    claimed: list[Lease] = []

    def note(lease: Lease) -> None:
        claimed.append(lease)
        on_claimed(lease)

    context = RunContext(
        correlation_id=run_id,
        scope=scope,
        services=replace(services or Services(), checkpointer=Checkpointer(port=store)),
        autonomy="auto",  # so that what the run was started with is what counts
    )
    result = await agent.carry_on(context, on_claimed=note)
    parked = result.parked == "recoveries" and before != "parked"
    return Driven(run_id, agent.name, result, worked=bool(claimed) or parked)


async def _agent_of(
    run_id: str, agents: Mapping[str, Agent], port: JournalPort
) -> tuple[Agent, RunStatus]:
    """The agent whose run this is, and the run's status, as its head says."""
    head = await port.head(run_id)
    if head is None or head.summary is None:
        message = f"run {run_id!r} does not exist in this store and scope"
        raise RunNotFound(message, run_id=run_id)
    name = head.summary.agent
    agent = agents.get(name)
    if agent is None:
        message = f"run {run_id!r} is of agent {name!r}, which is not among those given here"
        raise UnknownAgent(message, run_id=run_id, agent=name)
    return agent, head.summary.status
