"""`agentkit accept-failover`: let runs go on that a change of Redis servers has stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from agentkit.cli.options import IN_SCOPE, JSON_OUT, STORE, example
from agentkit.core.contracts.heads import TERMINAL_STATUSES
from agentkit.core.contracts.ports import JournalPort

if TYPE_CHECKING:
    from agentkit.core.contracts.types import Scope

__all__ = ["COMMANDS", "accept_failover"]


@click.command(epilog=example("agentkit accept-failover order-17 order-18"))
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every run of the scope that has not ended.")
@IN_SCOPE
@STORE
@JSON_OUT
def accept_failover(
    *, run_ids: tuple[str, ...], every: bool, scope: Scope, store: str | None, as_json: bool
) -> None:
    """Let runs go on that were stopped because another Redis server has taken over.

    The newest entries of such a run may be missing, and then its acts are done again: look with
    agentkit show first.
    """
    if every == bool(run_ids):
        raise click.UsageError("name runs, or say --all")
    _accept(store, run_ids, scope, as_json=as_json)


def _accept(
    store_url: str | None, run_ids: Sequence[str], scope: Scope, *, as_json: bool
) -> NoReturn:
    from agentkit.cli.exits import NOT_FOUND, OK
    from agentkit.cli.output import emit_json, say
    from agentkit.cli.session import run_command
    from agentkit.core.contracts.errors import StoreMisused
    from agentkit.state.checkpoints.adapters.redis import RedisCheckpointStore

    async def work(store: JournalPort) -> int:
        scoped = store.scoped(scope)
        if not isinstance(scoped, RedisCheckpointStore):
            raise StoreMisused(f"{store.location} is no Redis store; only those have failovers")
        names = list(run_ids) or [run async for run in _unfinished(scoped)]
        accepted = {run: await scoped.accept_failover(run) for run in names}
        if as_json:
            emit_json([{"run": run, "accepted": there} for run, there in accepted.items()])
        else:
            for run, there in accepted.items():
                say(f"{run}: {'goes on from what is there' if there else 'there is no such run'}")
        return OK if all(accepted.values()) else NOT_FOUND

    run_command(store_url, work, as_json=as_json)


async def _unfinished(store: JournalPort) -> AsyncIterator[str]:
    cursor, more = "", True
    while more:
        page, cursor = await store.list_runs(cursor=cursor)
        for one in page:
            if one.summary.status not in TERMINAL_STATUSES:
                yield one.run
        more = bool(cursor)


COMMANDS: tuple[click.Command, ...] = (accept_failover,)
"""How the command tree comes to it."""
