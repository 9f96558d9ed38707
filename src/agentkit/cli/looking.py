"""`runs`, `show` and `status`: look at what a store holds. Nothing is changed."""

from __future__ import annotations

import msgspec

from agentkit.cli.exits import OK
from agentkit.cli.output import ago, as_dict, emit_json, print_table, say, shorten
from agentkit.cli.session import run_command
from agentkit.cli.timeline import timeline
from agentkit.core.contracts.entries import Entry
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.ports import JournalPort, RunSummary
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.runtime import SystemClock
from agentkit.state.journal.codec import decode_rows
from agentkit.state.journal.fold import Detail
from agentkit.state.journal.journal import load_known

__all__ = ["count_runs", "list_runs", "show_run"]

_STATUSES = (
    "running",
    "interrupted",
    "suspended",
    "parked",
    "done",
    "failed",
    "cancelled",
    "saved",
)
"""As shown: a run that is `running` without a live lease is `interrupted`."""

_PAGE = 500


def list_runs(
    store_url: str | None,
    *,
    status: str | None,
    agent: str | None,
    limit: int,
    tenant: str,
    as_json: bool,
) -> None:
    """List the runs of a scope."""

    async def work(store: JournalPort) -> int:
        if status is not None and status not in _STATUSES:
            message = f"there is no status {status!r}; use one of {', '.join(_STATUSES)}"
            raise InvalidSpec(message)
        found = await _page(store.scoped(Scope(tenant=tenant)), status, agent, limit)
        if as_json:
            emit_json([_as_json(run) for run in found])
        elif not found:
            say("no runs", error=True)
        else:
            columns = ("run", "status", "agent", "age", "steps", "tokens", "why it waits")
            print_table(columns, [_as_cells(run) for run in found])
        return OK

    run_command(store_url, work, as_json=as_json)


def count_runs(store_url: str | None, *, tenant: str, as_json: bool) -> None:
    """Count the runs of a scope by status."""

    async def work(store: JournalPort) -> int:
        counts = dict.fromkeys(_STATUSES, 0)
        for run in await _page(store.scoped(Scope(tenant=tenant)), None, None, None):
            counts[_shown_status(run)] += 1
        if as_json:
            emit_json({"runs": counts, "total": sum(counts.values())})
        else:
            print_table(("status", "runs"), [(name, str(n)) for name, n in counts.items() if n])
        return OK

    run_command(store_url, work, as_json=as_json)


def show_run(store_url: str | None, run_id: str, *, tenant: str, as_json: bool) -> None:
    """Show one run's timeline."""

    async def work(store: JournalPort) -> int:
        port = store.scoped(Scope(tenant=tenant))
        state = await load_known(port, check_id(run_id))
        rows = await port.read(run_id, limit=state.seq)
        entries = [entry for entry, _ in decode_rows(rows, after=0, before=b"", run_id=run_id)]
        head = await port.head(run_id)
        live = head is not None and head.held
        if as_json:
            facts: list[JSON] = [_fact(entry) for entry in entries]
            status = _status(state.status, live=live)
            emit_json({"run": run_id, "status": status, "entries": facts})
            return OK
        for line in timeline(entries, state, status=_status(state.status, live=live)):
            say(line)
        return OK

    run_command(store_url, work, as_json=as_json)


async def _page(
    store: JournalPort, status: str | None, agent: str | None, limit: int | None
) -> list[RunSummary]:
    """Runs whose shown status is `status`, at most `limit`."""
    found: list[RunSummary] = []
    cursor = ""
    while True:
        page, cursor = await store.list_runs(agent=agent, limit=_PAGE, cursor=cursor)
        found += [run for run in page if status is None or _shown_status(run) == status]
        if not cursor or (limit is not None and len(found) >= limit):
            return found[:limit]


def _status(status: str, *, live: bool) -> str:
    return "interrupted" if status == "running" and not live else status


def _shown_status(run: RunSummary) -> str:
    return _status(run.summary.status, live=run.live)


def _detail(run: RunSummary) -> Detail:
    return msgspec.json.decode(run.summary.detail, type=Detail)


def _why(run: RunSummary) -> str:
    detail = _detail(run)
    if detail.questions:
        return "; ".join(f"{q.id}: {q.kind} {q.tool}" for q in detail.questions)
    if _shown_status(run) == "interrupted":
        return "its worker is gone; resume it"
    return f"{detail.parked}: {detail.message}" if detail.parked else detail.message


def _age(run: RunSummary) -> float:
    return SystemClock().now() - run.summary.started_at / 1000


def _as_cells(run: RunSummary) -> tuple[str, ...]:
    summary = run.summary
    return (
        shorten(run.run, 60),
        _shown_status(run),
        shorten(summary.agent, 30),
        ago(_age(run)),
        str(summary.iteration),
        str(summary.usage.total_tokens),
        shorten(_why(run), 80),
    )


def _as_json(run: RunSummary) -> dict[str, JSON]:
    summary, detail = run.summary, _detail(run)
    return {
        "run": run.run,
        "status": _shown_status(run),
        "agent": summary.agent,
        "task": detail.task,
        "age_seconds": round(_age(run), 3),
        "steps": summary.iteration,
        "input_tokens": summary.usage.input_tokens,
        "output_tokens": summary.usage.output_tokens,
        "unknown_answers": summary.usage.unknown,
        "why": _why(run),
        "questions": [question.id for question in detail.questions],
        "output": detail.output,
    }


def _fact(entry: Entry) -> dict[str, JSON]:
    body = entry.body
    place: dict[str, JSON] = {
        "seq": entry.seq,
        "id": entry.identity,
        "epoch": entry.epoch,
        "lane": entry.lane,
        "at": entry.at,
        "kind": body.__struct_config__.tag,
    }
    return {**place, **as_dict(body)}
