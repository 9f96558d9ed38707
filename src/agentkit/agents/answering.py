"""Decisions given to an agent, which knows its tools, before it goes on with the run."""

from __future__ import annotations

from collections.abc import Mapping

from agentkit.agents.admitting import Wanted, admit
from agentkit.agents.deciding import Recorded, record_decisions
from agentkit.agents.registry import ToolRegistry
from agentkit.agents.setting import Setting
from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts.types import JSON, Decision
from agentkit.state.journal.journal import load_known

__all__ = ["decide"]


async def decide(
    setting: Setting,
    decisions: Mapping[str, Decision | JSON],
    *,
    spec: AgentSpec,
    registry: ToolRegistry,
) -> Recorded:
    """Make decisions durable that the agent's tools can follow; see `record_decisions`.

    Raises:
        RunIdReused: the run is another agent's.
        InvalidDecision: they do not fit the questions, or the tools as they are now.
    """
    run_id, services = setting.context.correlation_id, setting.context.services
    admit(await load_known(setting.port, run_id), spec, Wanted(), now_ms=0)
    return await record_decisions(
        setting.port,
        run_id,
        decisions,
        clock=services.clock,
        chance=services.chance,
        check=lambda question, decision: registry.check_decision(run_id, question, decision),
    )
