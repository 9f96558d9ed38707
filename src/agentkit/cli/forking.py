"""`fork`: a new run from what another one had recorded up to a version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from agentkit.cli.exits import OK
from agentkit.cli.output import as_dict, emit_json, say
from agentkit.cli.session import leave_with, resume_command, run_command
from agentkit.core.contracts.errors import AgentkitError, InvalidFork
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.state.checkpoints import Checkpointer

__all__ = ["ForkOrder", "fork_run", "parse_edits"]

_PLACE = re.compile(r"(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True)
class ForkOrder:
    """What a command line asks for. `new_run_id` is `None` for a random one."""

    run_id: str
    version: str
    new_run_id: str | None
    edits: Sequence[str]
    message: str | None
    scope: Scope


def fork_run(order: ForkOrder, *, store_url: str | None, as_json: bool) -> NoReturn:
    """Make the fork, print its id, and leave."""
    try:
        check_id(order.run_id)
        version = _version(order.version)
        edits = parse_edits(order.edits)
        if order.message is not None and not order.message.strip():
            raise InvalidFork("--message is empty; leave it out, or say something")
        scope = order.scope
        scope.key  # noqa: B018 - an unusable one raises before anything is opened
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        made = await Checkpointer(port=store.scoped(scope)).fork(
            order.run_id,
            version=version,
            new_run_id=order.new_run_id,
            edits=edits,
            message=order.message or "",
            actor="command line",
        )
        if as_json:
            emit_json(as_dict(made))
            return OK
        say(made.run_id)
        say(f"forked from {made.parent} at version {made.version}; nothing was run", error=True)
        answer = f" --answer {made.questions[0].id}=…" if made.questions else ""
        resume = resume_command(made.run_id, store_url=store_url, scope=order.scope)
        say(f"carry it on: {resume}{answer}", error=True)
        return OK

    run_command(store_url, work, as_json=as_json)


def parse_edits(edits: Sequence[str]) -> dict[tuple[int, int], JSON]:
    """`3.0=TEXT` as: the model sees TEXT as the result of call 0 of turn 3.

    Raises:
        InvalidFork: an edit has another form, or a call is edited twice.
    """
    found: dict[tuple[int, int], JSON] = {}
    for text in edits:
        name, equals, content = text.partition("=")
        if name.strip() == "task":
            message = "the task cannot be edited: every answer of the model was given to it"
            raise InvalidFork(f"{message}. Say more with --message, or start a run of its own")
        match = _PLACE.fullmatch(name.strip())
        place = (int(match[1]), int(match[2])) if match is not None else None
        if place is None or not equals or place in found:
            message = f"--edit {text[:80]!r} must look like 3.0=TEXT (turn.call), each call once"
            raise InvalidFork(message)
        found[place] = content
    return found


def _version(text: str) -> int | None:
    if text == "latest":
        return None
    if not re.fullmatch(r"\d{1,9}", text):
        raise InvalidFork(f"--from {text[:80]!r} must be a version number, or latest")
    return int(text)
