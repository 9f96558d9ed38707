"""Commands that keep a store: `copy`, `export`, `import`. Their work is in files of its own."""

from __future__ import annotations

import click

from agentkit.cli.options import JSON_OUT, STORE, example

__all__ = ["COMMANDS", "copy", "export", "import_"]

_RUNS = click.option(
    "--run", "runs", multiple=True, metavar="ID", help="Only this run; may be given again."
)
_TENANT = click.option(
    "--tenant", default=None, help="Only scopes of this tenant; those of all tenants otherwise."
)


@click.command(epilog=example("agentkit copy sqlite:///agentkit.db sqlite:///elsewhere.db"))
@click.argument("source", metavar="SOURCE")
@click.argument("destination", metavar="DESTINATION")
@_RUNS
@_TENANT
@JSON_OUT
def copy(
    *, source: str, destination: str, runs: tuple[str, ...], tenant: str | None, as_json: bool
) -> None:
    """Copy runs from one store into another, and compare what is there with what was copied.

    Both are store URLs. Copying again is harmless. A run that has not ended is in both stores
    afterwards: carry it on in one of them only. Exits with 1 where a run was left out.
    """
    from agentkit.cli.moving import MoveOrder, copy_store

    copy_store(source, destination, MoveOrder(runs, tenant), as_json=as_json)


@click.command(epilog=example("agentkit export --output runs.jsonl"))
@_RUNS
@_TENANT
@click.option("--output", metavar="FILE", help="Write there, and only a whole file.")
@STORE
@JSON_OUT
def export(
    *,
    runs: tuple[str, ...],
    tenant: str | None,
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
    export_store(store, MoveOrder(runs, tenant), output=output, as_json=as_json)


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


COMMANDS: tuple[click.Command, ...] = (copy, export, import_)
