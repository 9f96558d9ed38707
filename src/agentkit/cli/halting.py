"""`cancel`, `pause` and `unpause`: stop a run without driving it."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from agentkit.agents.stopping import cancel, pause, unpause
from agentkit.cli.exits import OK
from agentkit.cli.output import emit_json, one_line, say
from agentkit.cli.session import resume_command, run_command
from agentkit.cli.settling import checked_scope
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.state.journal.fold import RunState

__all__ = ["StopOrder", "cancel_run", "pause_run", "unpause_run"]


class StopOrder(NamedTuple):
    """What the command line says. `by` and `why` are for the record."""

    run_id: str
    by: str
    why: str
    scope: Scope = Scope()


def cancel_run(
    store_url: str | None, order: StopOrder, wait_seconds: float, *, as_json: bool
) -> NoReturn:
    """Cancel a run and say how far that has come."""
    scope = checked_scope(order.run_id, order.scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        state = await cancel(
            store.scoped(scope),
            order.run_id,
            actor=order.by or "command line",
            reason=order.why,
            wait_seconds=wait_seconds,
        )
        if as_json:
            emit_json({"run": order.run_id, "status": state.status, "seq": state.seq})
        elif state.end is None:
            say("its cancel is recorded; the worker that holds the run has not ended it yet")
        else:
            say(f"cancelled{_asked_before(state, order)}{_in_doubt(state)}")
        return OK

    run_command(store_url, work, as_json=as_json)


def _asked_before(state: RunState, order: StopOrder) -> str:
    """Who was first, where it was somebody else: his words stand."""
    asked = state.cancel
    if asked is None or (asked.actor, asked.reason) == (order.by or "command line", order.why):
        return ""
    return f" before, by {one_line(asked.actor or 'somebody')}"


def _in_doubt(state: RunState) -> str:
    calls = state.main.turn.calls if state.main.turn is not None else []
    names = [
        call.record.name
        for call in calls
        if call.outcome is not None and call.outcome.outcome == "in_doubt"
    ]
    return f"; may have taken effect all the same: {one_line(', '.join(names))}" if names else ""


def pause_run(store_url: str | None, order: StopOrder, *, as_json: bool) -> NoReturn:
    """Pause a run and say how it goes on."""
    scope = checked_scope(order.run_id, order.scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        actor = order.by or "command line"
        state = await pause(store.scoped(scope), order.run_id, actor=actor, reason=order.why)
        if as_json:
            emit_json({"run": order.run_id, "status": state.status, "seq": state.seq})
        else:
            lift = resume_command(order.run_id, store_url=store_url, scope=scope, command="unpause")
            say(f"paused. It goes on with: {lift}")
        return OK

    run_command(store_url, work, as_json=as_json)


def unpause_run(store_url: str | None, order: StopOrder, *, as_json: bool) -> NoReturn:
    """Lift a pause and say what that leaves."""
    scope = checked_scope(order.run_id, order.scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        actor = order.by or "command line"
        state = await unpause(store.scoped(scope), order.run_id, actor=actor, reason=order.why)
        if as_json:
            emit_json({"run": order.run_id, "status": state.status, "seq": state.seq})
        elif state.parked is not None:
            say(one_line(f"unpaused; it is still parked: {state.parked.message}"))
        else:
            resume = resume_command(order.run_id, store_url=store_url, scope=scope)
            say(f"unpaused. It goes on with: {resume}")
        return OK

    run_command(store_url, work, as_json=as_json)
