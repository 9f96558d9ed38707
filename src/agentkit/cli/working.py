"""`worker`: keep runs going until told to stop, and tell what happens."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import NamedTuple, NoReturn

from agentkit.cli.driving import chosen_invoker
from agentkit.cli.exits import FAILED, INTERRUPTED, OK
from agentkit.cli.output import one_line, say
from agentkit.cli.reference import load_agent
from agentkit.cli.session import leave_interrupted, leave_with, run_command
from agentkit.cli.submitting import refuse_memory
from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON
from agentkit.core.runtime import Services, SystemClock
from agentkit.dispatch import Worker, WorkerEvent, agents_by_name

__all__ = ["WorkOrder", "work"]


class WorkOrder(NamedTuple):
    """What the command line says."""

    references: tuple[str, ...]
    concurrency: int
    poll_seconds: float
    grace_seconds: float
    until_idle: bool = False
    model: str | None = None


def work(order: WorkOrder, *, store_url: str | None, as_json: bool) -> NoReturn:
    """Work, and leave with 0 after SIGTERM, 130 after SIGINT, or 1 where runs were left failing."""
    tell = _json_lines() if as_json else _lines
    signals: list[int] = []
    workers: list[Worker] = []
    try:
        with redirect_stdout(sys.stderr):  # what agents and tools print is not our word
            agents = [load_agent(reference) for reference in dict.fromkeys(order.references)]
        agents_by_name(agents)
        services = Services(invoker=chosen_invoker(order.model))
    except AgentkitError as error:
        leave_with(error, as_json=as_json)
    except KeyboardInterrupt:
        leave_interrupted(as_json=as_json)

    def stop(number: int) -> bool:
        signals.append(number)
        for one in workers:
            one.stop()
        return bool(workers) and len(signals) == 1

    async def keep_going(store: JournalPort) -> int:
        refuse_memory(store)
        worker = Worker(
            agents,
            store=store,
            concurrency=order.concurrency,
            poll_seconds=order.poll_seconds,
            grace_seconds=order.grace_seconds,
            services=services,
            on_event=tell,
        )
        workers.append(worker)
        with redirect_stdout(sys.stderr):
            await worker.run(until_idle=order.until_idle)
        if signals:
            return INTERRUPTED if signals[0] == signal.SIGINT else OK
        return FAILED if worker.failing else OK

    run_command(store_url, keep_going, as_json=as_json, creates=True, on_signal=stop)


def _lines(event: WorkerEvent) -> None:
    """Tell a person."""
    if not event.run_id:
        say(one_line(event.text), error=True)
        return
    run = f"{event.scope}: {event.run_id}" if event.scope else event.run_id
    what = event.kind.replace("_", " ")
    say(one_line(f"{what} {run} ({event.agent}): {event.text}"), error=True)


def _json_lines() -> Callable[[WorkerEvent], None]:
    """Tell a program, on what is standard output now."""
    out, clock = sys.stdout, SystemClock()

    def tell(event: WorkerEvent) -> None:
        document: dict[str, JSON] = {
            "at": int(clock.now() * 1000),
            "event": event.kind,
            "text": event.text,
        }
        if event.run_id:
            document |= {"run": event.run_id, "scope": event.scope, "agent": event.agent}
        if event.driven is not None:
            document["stop_reason"] = event.driven.result.stop_reason
        out.write(json.dumps(document, ensure_ascii=True) + "\n")
        out.flush()

    return tell
