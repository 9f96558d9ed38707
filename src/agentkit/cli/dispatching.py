"""Commands for runs that others make: `submit`, `worker`. Their work is in files of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentkit.cli.options import AUTONOMY, GRACE, IDENTITY, IN_SCOPE, JSON_OUT, STORE, example

if TYPE_CHECKING:
    from agentkit.core.contracts.types import Scope

__all__ = ["COMMANDS", "submit", "worker"]


@click.command(epilog=example('agentkit submit shop:agent "Order 20 bulbs" --run-id order-17'))
@click.argument("agent", metavar="AGENT")
@click.argument("task")
@click.option("--run-id", help="The run's id; a random one is made otherwise.")
@IDENTITY
@AUTONOMY
@IN_SCOPE
@STORE
@JSON_OUT
def submit(
    *,
    agent: str,
    task: str,
    run_id: str | None,
    identity: str,
    autonomy: str,
    scope: Scope,
    store: str | None,
    as_json: bool,
) -> None:
    """Have a run made by a worker. Nothing is run by this, and the agent is not imported.

    AGENT is its name, or MODULE:AGENT as the worker was told. The run's id is printed once it is
    durable that it is wanted; the same id and task again change nothing.
    """
    from agentkit.cli.submitting import SubmitOrder, submit_run

    order = SubmitOrder(agent, task, run_id, identity=identity, autonomy=autonomy, scope=scope)
    submit_run(order, store_url=store, as_json=as_json)


@click.command(epilog=example("agentkit worker shop:agent --store sqlite:///runs.db"))
@click.argument("references", metavar="MODULE:AGENT...", nargs=-1, required=True)
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    help="How many runs are driven at a time.",
)
@click.option(
    "--poll",
    "poll_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0.01),
    default=1.0,
    show_default=True,
    help="How often to look for runs.",
)
@GRACE
@click.option("--until-idle", is_flag=True, help="Leave when no run wants a worker any more.")
@click.option("--model", metavar="PROVIDER:MODEL", help="Use this model, e.g. openai:gpt-5.1.")
@STORE
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document a line.")
def worker(
    *,
    references: tuple[str, ...],
    concurrency: int,
    poll_seconds: float,
    grace_seconds: float,
    until_idle: bool,
    model: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Keep the runs of these agents going: submitted, interrupted, answered, due.

    Of all tenants of the store. Any number of workers may share one. The first SIGTERM or SIGINT
    has what is under way end, and leaves every run resumable; the second one stops at once.
    """
    from agentkit.cli.working import WorkOrder, work

    order = WorkOrder(
        references,
        concurrency=concurrency,
        poll_seconds=poll_seconds,
        grace_seconds=grace_seconds,
        until_idle=until_idle,
        model=model,
    )
    work(order, store_url=store, as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (submit, worker)
"""How the command tree comes to them."""
