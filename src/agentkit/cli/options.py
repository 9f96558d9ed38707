"""Options that many commands share, and the end of their help texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click

__all__ = [
    "AUTONOMY",
    "GRACE",
    "IDENTITY",
    "IN_SCOPE",
    "JSON_OUT",
    "OF_SCOPES",
    "STORE",
    "WAIT",
    "example",
]

STORE = click.option(
    "--store",
    metavar="URL",
    help="Where runs are kept; AGENTKIT_STORE_URL, else sqlite:///agentkit.db.",
)
JSON_OUT = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
IDENTITY = click.option(
    "--identity", default="", help="Who asks for it, for its tools and the record."
)
AUTONOMY = click.option(
    "--autonomy",
    type=click.Choice(("auto", "gated", "manual")),
    default="gated",
    show_default=True,
    help="Which of its calls wait for a person's approval.",
)
WAIT = click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="How long to wait for another worker that holds the run.",
)
GRACE = click.option(
    "--grace",
    "grace_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    help="How long what is under way may take to end after SIGTERM or SIGINT.",
)


_OF_SCOPES = (
    click.option("--tenant", help="Only scopes of this tenant; those of all tenants otherwise."),
    click.option("--user", help="Only scopes of this user; those of all users otherwise."),
)


def IN_SCOPE(command: Callable[..., None]) -> Callable[..., None]:  # noqa: N802 - an option
    """`--tenant` and `--user` for a command that takes the `scope` of its run or runs."""

    @wraps(command)
    def within(*, tenant: str, user: str, **given: object) -> None:
        from agentkit.core.contracts.types import Scope

        command(scope=Scope(tenant, user), **given)

    of_user = click.option("--user", default="", help="The user of that scope, where it has one.")
    of_tenant = click.option("--tenant", default="", help="Whose it is: the tenant of the scope.")
    return of_tenant(of_user(within))


def OF_SCOPES(command: Callable[..., None]) -> Callable[..., None]:  # noqa: N802 - an option
    """`--tenant` and `--user` for a command that looks at all scopes unless one is named."""
    for option in reversed(_OF_SCOPES):
        command = option(command)
    return command


def example(*lines: str) -> str:
    """The end of a help text; its first character keeps click from filling the lines."""
    return "\n  ".join(["\b\nExample:", *lines])
