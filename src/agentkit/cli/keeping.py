"""Commands that keep a store. Each one's work is in a file of its own, loaded when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from agentkit.cli.options import JSON_OUT, OF_SCOPES, STORE, example

if TYPE_CHECKING:
    from agentkit.cli.pruning import GcOrder

__all__ = ["COMMANDS", "copy", "export", "gc", "import_", "migrate"]

_RUNS = click.option(
    "--run", "runs", multiple=True, metavar="ID", help="Only this run; may be given again."
)


@click.command(epilog=example("agentkit copy sqlite:///agentkit.db sqlite:///elsewhere.db"))
@click.argument("source", metavar="SOURCE")
@click.argument("destination", metavar="DESTINATION")
@_RUNS
@OF_SCOPES
@JSON_OUT
def copy(
    *,
    source: str,
    destination: str,
    runs: tuple[str, ...],
    tenant: str | None,
    user: str | None,
    as_json: bool,
) -> None:
    """Copy runs from one store into another, and compare what is there with what was copied.

    Both are store URLs. Copying again is harmless. A run that has not ended is in both stores
    afterwards: carry it on in one of them only. Exits with 1 where a run was left out.
    """
    from agentkit.cli.moving import MoveOrder, copy_store

    copy_store(source, destination, MoveOrder(runs, tenant, user), as_json=as_json)


@click.command(epilog=example("agentkit export --output runs.jsonl"))
@_RUNS
@OF_SCOPES
@click.option("--output", metavar="FILE", help="Write there, and only a whole file.")
@STORE
@JSON_OUT
def export(
    *,
    runs: tuple[str, ...],
    tenant: str | None,
    user: str | None,
    output: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Write runs as lines of JSON, to standard output or into a file.

    The entries are written as they are stored, with their checksums, and each line is sealed. Exits
    with 1 where a run was left out.
    """
    from agentkit.cli.moving import MoveOrder, export_store

    if as_json and output is None:
        raise click.UsageError("--json needs --output, since standard output has the runs")
    export_store(store, MoveOrder(runs, tenant, user), output=output, as_json=as_json)


@click.command("import", epilog=example("agentkit import runs.jsonl --store sqlite:///other.db"))
@click.argument("file", metavar="FILE")
@STORE
@JSON_OUT
def import_(*, file: str, store: str | None, as_json: bool) -> None:
    """Put the runs of an exported file into a store; - reads standard input.

    Importing again is harmless. Where the file is damaged the runs that are intact go in, and each
    damaged place is told. Exits with 1 where anything was left out.
    """
    from agentkit.cli.moving import import_file

    import_file(store, file, as_json=as_json)


@click.command(epilog=example("agentkit gc --older-than 7d --tombstones-older-than 14d --dry-run"))
@click.option(
    "--older-than",
    required=True,
    metavar="AGE",
    help="Ended runs whose last entry is older lose their entries: 90s, 30m, 12h, 7d, 2w.",
)
@click.option(
    "--tombstones-older-than",
    "tombstones",
    metavar="AGE",
    help="What is left of runs that ended before that is deleted; kept otherwise.",
)
@click.option(
    "--keep-latest",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of each scope the N ended runs that began last stay whole.",
)
@click.option(
    "--in-doubt",
    metavar="RUN",
    multiple=True,
    help="This run goes too, though it ended with a call in doubt: you know what became of it.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--no-reclaim", is_flag=True, help="Leave the space to the store for new runs.")
@OF_SCOPES
@STORE
@JSON_OUT
def gc(*, store: str | None, as_json: bool, **order: Unpack[GcOrder]) -> None:
    """Remove old runs that have ended, and give their space back.

    A run that ended keeps its status, result and usage as its tombstone, so that the same run is
    not done again. Runs that have not ended, that ended with a call in doubt or that cannot be read
    are never removed.
    """
    from agentkit.cli import pruning

    pruning.collect_runs(store, order, as_json=as_json)


@click.command(epilog=example("agentkit migrate --store sqlite:///runs.db"))
@click.option("--print", "only_print", is_flag=True, help="Print the SQL and do nothing.")
@STORE
@JSON_OUT
def migrate(*, only_print: bool, store: str | None, as_json: bool) -> None:
    """Bring the schema of a store up to this release.

    Whoever opens a store first does that too; this does it at a time of your choice.
    """
    from agentkit.cli.migrating import migrate_store

    migrate_store(store, only_print=only_print, as_json=as_json)


COMMANDS: tuple[click.Command, ...] = (copy, export, import_, gc, migrate)
