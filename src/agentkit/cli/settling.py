"""`unpark` and `tool settle`: say something of a run without driving it."""

from __future__ import annotations

from typing import TypedDict

from agentkit.agents.settling import settle_call, unpark
from agentkit.cli.driving import read_value
from agentkit.cli.exits import OK
from agentkit.cli.output import emit_json, say
from agentkit.cli.session import leave_with, resume_command, run_command
from agentkit.core.contracts.errors import AgentkitError, InvalidDecision
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Decision, Scope

__all__ = ["SettleOrder", "checked_scope", "settle", "unpark_run"]

_ACTOR = "command line"


class SettleOrder(TypedDict):
    """What the command line says of a call."""

    run_id: str
    call: str
    done: str | None
    failed: str | None
    run_again: bool
    skip: bool
    by: str
    why: str
    scope: Scope


def settle(order: SettleOrder, *, store_url: str | None, as_json: bool) -> None:
    """Settle a call in doubt, and tell how the run goes on."""
    run_id, call = order["run_id"], order["call"]
    scope = checked_scope(run_id, order["scope"], as_json=as_json)
    try:
        decision = _decision(order)
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        state = await settle_call(store.scoped(scope), run_id, call, decision)
        answer = decision.answer
        if as_json:
            emit_json({"run": run_id, "call": call, "answer": answer, "seq": state.seq})
        else:
            resume = resume_command(run_id, store_url=store_url, scope=scope)
            say(f"recorded: {answer}. It goes on with: {resume}")
        return OK

    run_command(store_url, work, as_json=as_json)


def _decision(order: SettleOrder) -> Decision:
    """What the options say; a `done` value is JSON where it parses as JSON, else a text.

    Raises:
        InvalidDecision: they say nothing, or more than one thing.
    """
    said = {
        "done": order["done"] is not None,
        "failed": order["failed"] is not None,
        "run_again": order["run_again"],
        "skip": order["skip"],
    }
    chosen = [answer for answer, is_said in said.items() if is_said]
    if len(chosen) != 1:
        raise InvalidDecision("say exactly one of --done, --failed, --run-again and --skip")
    value = order["failed"] if order["done"] is None else read_value(order["done"])
    return Decision(chosen[0], value, order["by"] or _ACTOR, order["why"])


def unpark_run(
    store_url: str | None, run_id: str, *, by: str, why: str, scope: Scope, as_json: bool
) -> None:
    """Let a parked run go on."""
    checked_scope(run_id, scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        actor = by or _ACTOR
        state = await unpark(store.scoped(scope), run_id, actor=actor, reason=why)
        if as_json:
            emit_json({"run": run_id, "status": state.status, "seq": state.seq})
        else:
            resume = resume_command(run_id, store_url=store_url, scope=scope)
            say(f"unparked. It goes on with: {resume}")
        return OK

    run_command(store_url, work, as_json=as_json)


def checked_scope(run_id: str, scope: Scope, *, as_json: bool) -> Scope:
    """The scope of a run, or leave with what is wrong with either."""
    try:
        check_id(run_id)
        scope.key  # noqa: B018 - an unusable one raises before anything is opened
    except AgentkitError as error:
        leave_with(error, as_json=as_json)
    return scope
