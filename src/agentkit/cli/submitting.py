"""`submit`: put a run on record that a worker is to make."""

from __future__ import annotations

from typing import NamedTuple, NoReturn, cast

from agentkit.agents.submitting import submit
from agentkit.cli.exits import OK
from agentkit.cli.output import emit_json, say
from agentkit.cli.session import run_command
from agentkit.cli.settling import checked_scope
from agentkit.core.contracts.errors import InvalidStoreUrl
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime import SystemChance
from agentkit.core.runtime.context import Autonomy
from agentkit.state.checkpoints.places import in_memory

__all__ = ["SubmitOrder", "refuse_memory", "submit_run"]


class SubmitOrder(NamedTuple):
    """What the command line says."""

    agent: str
    task: str
    run_id: str | None
    identity: str = ""
    autonomy: str = "gated"
    scope: Scope = Scope()


def submit_run(order: SubmitOrder, *, store_url: str | None, as_json: bool) -> NoReturn:
    """Submit the run, and tell its id once that is durable."""
    run_id = SystemChance().token() if order.run_id is None else order.run_id
    scope = checked_scope(run_id, order.scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        refuse_memory(store)
        made = await submit(
            store.scoped(scope),
            run_id,
            order.task,
            agent=order.agent,
            identity=order.identity,
            autonomy=cast("Autonomy", order.autonomy),
        )
        status = made.state.status
        if as_json:
            emit_json({"run": run_id, "status": status, "repeated": made.repeated})
            return OK
        say(run_id)
        if made.repeated:
            say(f"it was there already, with this task: {status}", error=True)
        return OK

    run_command(store_url, work, as_json=as_json, creates=True)


def refuse_memory(store: JournalPort) -> None:
    """Refuse a store that no other process sees.

    Raises:
        InvalidStoreUrl: it is in memory.
    """
    if in_memory(store):
        raise InvalidStoreUrl(
            "memory:// belongs to one process and is gone with it, so a worker finds nothing there "
            "that was submitted elsewhere. Name a store with --store: sqlite:///runs.db"
        )
