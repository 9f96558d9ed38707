"""Options that many commands share, and the end of their help texts."""

from __future__ import annotations

import click

__all__ = ["JSON_OUT", "STORE", "example"]

STORE = click.option(
    "--store",
    metavar="URL",
    help="Where runs are kept; AGENTKIT_STORE_URL, else sqlite:///agentkit.db.",
)
JSON_OUT = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def example(*lines: str) -> str:
    """The end of a help text; its first character keeps click from filling the lines."""
    return "\n  ".join(["\b\nExample:", *lines])
