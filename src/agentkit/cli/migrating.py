"""`migrate`: the schema of a store."""

from __future__ import annotations

from typing import NoReturn

from agentkit.cli.exits import OK
from agentkit.cli.output import as_dict, emit_json, say
from agentkit.cli.session import run_command
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.upkeep import Migration, migrates

__all__ = ["migrate_store"]


def migrate_store(store_url: str | None, *, only_print: bool, as_json: bool) -> NoReturn:
    """Apply what the store lacks, or print all of it."""

    async def work(store: JournalPort) -> int:
        port = migrates(store)
        if port is None:
            if as_json:
                emit_json({"store": store.location, "has_schema": False, "steps": []})
            else:
                say(f"{store.location} has no schema: there is nothing to do", error=True)
            return OK
        known = await port.migrations()
        lacking = [step for step in known if not step.applied]
        if not only_print:
            lacking = await port.migrate()
        if as_json:
            numbers = {step.number for step in lacking}
            emit_json(_as_json(store.location, known, numbers, only_print=only_print))
        elif only_print:
            for step in known:
                say(_script(step))
        elif lacking:
            for step in lacking:
                say(f"applied {step.number:03} {step.name}")
        else:
            say(f"the schema is up to date: {known[-1].number:03} {known[-1].name}")
        return OK

    run_command(store_url, work, as_json=as_json, creates=True)


def _script(step: Migration) -> str:
    state = "applied" if step.applied else "lacking"
    return f"-- {step.number:03} {step.name}: {state}\n{step.sql.rstrip()}\n"


def _as_json(
    location: str, known: list[Migration], lacking: set[int], *, only_print: bool
) -> dict[str, JSON]:
    steps: list[JSON] = []
    for step in known:
        now = not only_print and step.number in lacking
        steps.append({**as_dict(step), "applied": step.applied or now, "applied_now": now})
    return {"store": location, "has_schema": True, "steps": steps}
