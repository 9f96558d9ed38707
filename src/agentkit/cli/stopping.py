"""Commands that stop a run: `cancel`, `pause`. Their work is in `halting`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentkit.cli.options import IN_SCOPE, JSON_OUT, STORE, example

if TYPE_CHECKING:
    from agentkit.core.contracts.types import Scope

__all__ = ["COMMANDS", "cancel", "pause"]

_BY = click.option("--by", default="", help="Who says so, for the record.")


@click.command(epilog=example("agentkit cancel order-17 --by ann --why 'ordered twice'"))
@click.argument("run_id", metavar="RUN")
@_BY
@click.option("--why", default="", help="Why, for the record and for whoever comes too late.")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="How long to wait for a living worker to record the end.",
)
@IN_SCOPE
@STORE
@JSON_OUT
def cancel(
    *,
    run_id: str,
    by: str,
    why: str,
    wait_seconds: float,
    scope: Scope,
    store: str | None,
    as_json: bool,
) -> None:
    """End a run for good, whoever works on it. It never comes back.

    Nothing new begins from that moment; what is under way is cut off within a heartbeat.
    """
    from agentkit.cli.halting import StopOrder, cancel_run

    cancel_run(store, StopOrder(run_id, by, why, scope), wait_seconds, as_json=as_json)


@click.command(epilog=example("agentkit pause order-17 --by ann --why 'prices are being checked'"))
@click.argument("run_id", metavar="RUN")
@_BY
@click.option("--why", default="", help="Why, for the record.")
@IN_SCOPE
@STORE
@JSON_OUT
def pause(
    *, run_id: str, by: str, why: str, scope: Scope, store: str | None, as_json: bool
) -> None:
    """Stop a run until agentkit unpause lets it go on.

    What is under way ends and is recorded; nothing new begins.
    """
    from agentkit.cli.halting import StopOrder, pause_run

    pause_run(store, StopOrder(run_id, by, why, scope), as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (cancel, pause)
