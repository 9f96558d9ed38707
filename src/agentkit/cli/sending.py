"""`send`: tell a run of an event, or say something more to it, without driving it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from agentkit.agents.noting import add_message, send_event
from agentkit.cli.driving import read_value
from agentkit.cli.exits import OK
from agentkit.cli.output import emit_json, say
from agentkit.cli.session import run_command
from agentkit.cli.settling import checked_scope
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope

__all__ = ["SendOrder", "send_to_run"]


@dataclass(frozen=True)
class SendOrder:
    """What the command line says: the name of an event and its payload, or a message."""

    run_id: str
    name: str | None
    payload: str | None
    message: str | None
    identity: str | None
    by: str = ""
    scope: Scope = field(default_factory=Scope)


def send_to_run(store_url: str | None, order: SendOrder, *, as_json: bool) -> NoReturn:
    """Write it down, say whether it was known before, and leave."""
    scope = checked_scope(order.run_id, order.scope, as_json=as_json)
    actor = order.by or "command line"

    async def work(store: JournalPort) -> int:
        view, run = store.scoped(scope), order.run_id
        if order.message is not None:
            noted = await add_message(
                view, run, order.message, message_id=order.identity, actor=actor
            )
        else:
            payload = None if order.payload is None else read_value(order.payload)
            noted = await send_event(
                view, run, order.name or "", payload, event_id=order.identity, actor=actor
            )
        state = noted.state
        if as_json:
            recorded = not noted.repeated
            document = {"run": run, "recorded": recorded, "status": state.status, "seq": state.seq}
            emit_json(document)
        elif noted.repeated:
            say("known by its id already; nothing was changed")
        else:
            say(f"recorded; the run is {state.status}")
        return OK

    run_command(store_url, work, as_json=as_json)
