"""A drive's runner of calls, with everything that tools may ask of it."""

from __future__ import annotations

from collections.abc import Callable

from agentkit.agents.calls import CallRunner
from agentkit.agents.recording import Recording
from agentkit.agents.waiting import Waiting
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.ports import ToolThreads
from agentkit.core.runtime import RunContext
from agentkit.state.journal.journal import Journal
from agentkit.state.journal.lease import Tenure

__all__ = ["runner_for"]


def runner_for(
    journal: Journal,
    tenure: Tenure,
    context: RunContext,
    *,
    lane: str,
    threads: ToolThreads,
    late: Callable[[e.ToolFinished], None],
) -> CallRunner:
    """The runner of the calls of `lane` in this tenure; `late` and `threads` as there."""
    services = context.services
    return CallRunner(
        run_id=context.correlation_id,
        scope=context.scope,
        identity=context.identity,
        epoch=tenure.lease.epoch,
        threads=threads,
        check=tenure.check,
        held=lambda: journal.state.stopping or tenure.head_seq > journal.state.seq,
        recording=Recording(journal, lane=lane, check=tenure.check, services=services),
        waiting=Waiting(journal, lane=lane, check=tenure.check, clock=services.clock),
        late=late,
        owner=tenure.lease.owner,
    )
