"""Commands by which persons answer runs: `approvals`, `approve`, `reject`, `edit`, `answer`, `send`
and `unpause`. Their work is in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Unpack

import click

from agentkit.cli.options import IN_SCOPE, JSON_OUT, STORE, example

if TYPE_CHECKING:
    from agentkit.cli.approving import Given
    from agentkit.core.contracts.types import Scope

__all__ = ["COMMANDS", "answer", "approvals", "approve", "edit", "reject", "send", "unpause"]

_BY = click.option("--by", default="", metavar="NAME", help="Who says so, for the record.")
_NOTE = click.option("--note", default="", metavar="TEXT", help="Why, for the record.")


def _about_a_question(command: Callable[..., None]) -> Callable[..., None]:
    """The arguments and options that every decision has."""
    digest = click.option(
        "--digest",
        default="",
        metavar="HEX",
        help="Decide only what was shown: the question's digest, or at least 8 characters of it.",
    )
    for option in (JSON_OUT, STORE, IN_SCOPE, digest, _BY):
        command = option(command)
    return command


@click.command(epilog=example("agentkit approvals --all-scopes"))
@click.option("--all-scopes", is_flag=True, help="Of all scopes; with --tenant of that tenant's.")
@click.option("--tenant", default=None, help="Whose runs: the tenant of the scope.")
@click.option("--user", default="", help="The user of the scope, where it has one.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="At most so many, up to 1000.",
)
@click.option("--skip", metavar="N", type=click.IntRange(0), default=0, help="Leave out the first.")
@STORE
@JSON_OUT
def approvals(
    *,
    all_scopes: bool,
    tenant: str | None,
    user: str,
    limit: int,
    skip: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List what waits for a person, over all runs: the whole call, and what may be answered.

    The next deadline comes first, then the oldest run. Nothing is changed.
    """
    from agentkit.cli.approving import Page, list_questions

    if all_scopes and user:
        raise click.UsageError("--user names one scope and --all-scopes means all of them")
    page = Page(all_scopes, tenant, user, limit, skip)
    list_questions(store, page, as_json=as_json)


@click.command(epilog=example("agentkit approve order-17 q9 --by ann"))
@click.argument("run_id", metavar="RUN")
@click.argument("question", metavar="QUESTION")
@_NOTE
@_about_a_question
def approve(*, run_id: str, question: str, note: str, **given: Unpack[Given]) -> None:
    """Have a call made that waits for approval, as it is shown.

    The decision is written down, and whichever worker comes next goes on; the agent is not needed.
    """
    from agentkit.cli.approving import Said, decide

    decide(run_id, question, Said("approve", why=note), given)


@click.command(epilog=example("agentkit reject order-17 q9 --by ann --reason 'too dear'"))
@click.argument("run_id", metavar="RUN")
@click.argument("question", metavar="QUESTION")
@click.option("--reason", default="", metavar="TEXT", help="Why; the model is told.")
@_about_a_question
def reject(*, run_id: str, question: str, reason: str, **given: Unpack[Given]) -> None:
    """Have a call not made that waits for approval."""
    from agentkit.cli.approving import Said, decide

    decide(run_id, question, Said("reject", why=reason), given)


@click.command(epilog=example("agentkit edit order-17 q9 '{\"cents\": 1200}' --by ann"))
@click.argument("run_id", metavar="RUN")
@click.argument("question", metavar="QUESTION")
@click.argument("arguments", metavar="ARGUMENTS")
@_NOTE
@_about_a_question
def edit(*, run_id: str, question: str, arguments: str, note: str, **given: Unpack[Given]) -> None:
    """Have a call made that waits for approval, with other arguments.

    ARGUMENTS is a JSON object with all of them. The model is told what the call ran with.
    """
    from agentkit.cli.approving import Said, decide

    decide(run_id, question, Said("edit", json=arguments, why=note), given)


@click.command(epilog=example("agentkit answer order-17 q9 M"))
@click.argument("run_id", metavar="RUN")
@click.argument("question", metavar="QUESTION")
@click.argument("value", metavar="[VALUE]", required=False)
@click.option("--json-value", metavar="JSON", help="The answer as JSON: 5, true, null, a list.")
@_NOTE
@_about_a_question
def answer(
    *,
    run_id: str,
    question: str,
    value: str | None,
    json_value: str | None,
    note: str,
    **given: Unpack[Given],
) -> None:
    """Answer a tool that asks. VALUE is a text; give anything else with --json-value."""
    from agentkit.cli.approving import Said, decide

    if (value is None) == (json_value is None):
        raise click.UsageError("give either a VALUE or --json-value")
    decide(run_id, question, Said("answer", value, json_value, note), given)


@click.command(epilog=example("agentkit send order-17 payment '{\"cents\": 1200}' --id p-4711"))
@click.argument("run_id", metavar="RUN")
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@click.option("--message", metavar="TEXT", help="Say this to the model, as the user.")
@click.option("--id", "identity", metavar="ID", help="Names it once for all: it counts once.")
@_BY
@IN_SCOPE
@STORE
@JSON_OUT
def send(
    *,
    run_id: str,
    name: str | None,
    payload: str | None,
    message: str | None,
    identity: str | None,
    by: str,
    scope: Scope,
    store: str | None,
    as_json: bool,
) -> None:
    """Tell a run that something has happened, or say something more to it.

    NAME is the event's, for whoever waits for it; PAYLOAD is JSON where it parses as JSON, else a
    text. Whichever worker comes next goes on with it.
    """
    from agentkit.cli.sending import SendOrder, send_to_run

    if (name is None) == (message is None):
        raise click.UsageError("give either the NAME of an event or --message")
    order = SendOrder(run_id, name, payload, message, identity, by=by, scope=scope)
    send_to_run(store, order, as_json=as_json)


@click.command(epilog=example("agentkit unpause order-17 --by ann"))
@click.argument("run_id", metavar="RUN")
@_BY
@click.option("--why", default="", help="Why, for the record.")
@IN_SCOPE
@STORE
@JSON_OUT
def unpause(
    *, run_id: str, by: str, why: str, scope: Scope, store: str | None, as_json: bool
) -> None:
    """Let a paused run go on, unless something else has parked it. Nothing is run by this."""
    from agentkit.cli.halting import StopOrder, unpause_run

    unpause_run(store, StopOrder(run_id, by, why, scope), as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (approvals, approve, reject, edit, answer, send, unpause)
