"""`runs`, `show` and `status`: look at what a store holds. Nothing is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentkit.cli.exits import OK, exit_code_of
from agentkit.cli.output import ago, as_dict, emit_json, one_line, print_table, say, shorten
from agentkit.cli.session import leave_with, run_command
from agentkit.cli.standing import status_in_head, status_in_list
from agentkit.cli.statuses import LEFT_OPEN, STATUSES
from agentkit.cli.timeline import in_doubt, is_tombstone, timeline
from agentkit.core.contracts.entries import Entry
from agentkit.core.contracts.errors import InvalidId, JournalDamaged, JournalTooNew
from agentkit.core.contracts.heads import Row, RunSummary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.runtime import SystemClock
from agentkit.state.journal.codec import damaged, decode_rows
from agentkit.state.journal.detail import Detail
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load_known

__all__ = ["count_runs", "list_runs", "show_run"]

_PAGE = 500
_LEFT = {
    "tombstone": "its entries are gone, its result is kept",
    "expired": "it has expired: its entries are gone, and it had not ended",
}

_NOBODY_AT_IT = {
    "interrupted": "its worker is gone; resume it",
    "ready": "it can go on: a worker or agentkit resume takes it up",
}


def list_runs(
    store_url: str | None,
    *,
    status: str | None,
    agent: str | None,
    limit: int,
    scope: Scope,
    as_json: bool,
) -> None:
    """List the runs of a scope."""
    _check(scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        view = store.scoped(scope)
        found = await _page(view, status, agent, limit)
        bare = await _bare(view, found)
        if as_json:
            emit_json([_as_json(run, left=bare.get(run.run, "")) for run in found])
        elif not found:
            say(f"no runs in {store.location}", error=True)
        else:
            columns = ("run", "status", "agent", "age", "steps", "tokens", "why it waits")
            print_table(columns, [_as_cells(run, left=bare.get(run.run, "")) for run in found])
        return OK

    run_command(store_url, work, as_json=as_json)


def count_runs(store_url: str | None, *, scope: Scope, as_json: bool) -> None:
    """Count the runs of a scope by status."""
    _check(scope, as_json=as_json)

    async def work(store: JournalPort) -> int:
        counts = dict.fromkeys(STATUSES, 0)
        for run in await _page(store.scoped(scope), None, None, None):
            counts[_shown_status(run)] += 1
        if as_json:
            emit_json({"runs": counts, "total": sum(counts.values())})
        else:
            print_table(("status", "runs"), [(name, str(n)) for name, n in counts.items() if n])
        return OK

    run_command(store_url, work, as_json=as_json)


def show_run(store_url: str | None, run_id: str, *, scope: Scope, as_json: bool) -> None:
    """Show one run's timeline."""
    _check(scope, run_id, as_json=as_json)

    async def work(store: JournalPort) -> int:
        seen = await _see(store.scoped(scope), run_id)
        if as_json:
            emit_json(_seen_as_json(run_id, seen))
        else:
            for line in timeline(seen.entries, seen.state, status=seen.status):
                say(line)
            if is_tombstone(seen.state):
                past = SystemClock().now() - seen.state.updated_at / 1000
                say(
                    f"It ended {ago(past)} ago. Its entries were removed since; this is its result."
                )
            if seen.damage is not None:
                say(f"Error: {one_line(str(seen.damage))}", error=True)
        return OK if seen.damage is None else exit_code_of(seen.damage)

    run_command(store_url, work, as_json=as_json)


class _Seen(NamedTuple):
    """A run as far as it can be read, and what keeps us from reading on."""

    entries: list[Entry]
    state: RunState
    status: str
    damage: JournalDamaged | JournalTooNew | None


async def _see(port: JournalPort, run_id: str) -> _Seen:
    """Read what is good; unlike a worker, who must not act on half a journal, a person may look.

    Raises:
        RunNotFound: there is no such run.
        RunExpired: its entries are gone, and it has not ended.
    """
    head = await port.head(run_id)
    if head is not None and head.tombstone:
        state = await load_known(port, run_id)
        return _Seen([], state, state.status, None)
    rows: list[Row] = []
    while page := await port.read(run_id, after=len(rows), limit=_PAGE):
        rows += page
        if page[-1].seq != len(rows):
            break  # one is missing, and decoding will say which
    entries: list[Entry] = []
    state = RunState(run_id)
    damage: JournalDamaged | JournalTooNew | None = None
    try:
        for entry, row_check in decode_rows(rows, after=0, before=b"", run_id=run_id):
            state.apply(entry, row_check)
            entries.append(entry)
        if not entries:
            await load_known(port, run_id)
        if head is not None and state.seq < head.seq:
            raise damaged(run_id, state.seq + 1, f"entry {state.seq + 1} is missing")
        if head is not None and state.seq == head.seq and state.check != head.check:
            raise damaged(run_id, state.seq, "its checksum is not the one that the head tells")
    except (JournalDamaged, JournalTooNew) as error:
        damage = error
    if damage is not None:
        return _Seen(entries, state, "damaged", damage)
    status = status_in_head(head, state.status, now_ms=_now_ms())
    return _Seen(entries, state, status, None)


def _seen_as_json(run_id: str, seen: _Seen) -> dict[str, JSON]:
    forked = seen.state.forked
    document: dict[str, JSON] = {
        "run": run_id,
        "status": seen.status,
        "tombstone": is_tombstone(seen.state),
        "output": seen.state.base_detail.output if is_tombstone(seen.state) else None,
        "usage": as_dict(seen.state.usage),
        "after": seen.state.after or None,
        "forked_from": None
        if forked is None or seen.state.after
        else _origin(forked.parent, forked.version),
        "usage_before_fork": as_dict(seen.state.inherited) if forked is not None else None,
        "questions": [as_dict(question) for question in seen.state.questions],
        "in_doubt": [*in_doubt(seen.state)] if seen.status in LEFT_OPEN else [],
        "entries": [_fact(entry) for entry in seen.entries],
    }
    if seen.damage is not None:
        document["error"] = type(seen.damage).__name__
        document["message"] = str(seen.damage)
    return document


def _check(scope: Scope, run_id: str | None = None, *, as_json: bool) -> None:
    """Refuse what can name nothing before a store is opened."""
    try:
        scope.key  # noqa: B018 - asked for what it raises
        if run_id is not None:
            check_id(run_id)
    except InvalidId as error:
        leave_with(error, as_json=as_json)


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


async def _bare(view: JournalPort, runs: Sequence[RunSummary]) -> dict[str, str]:
    """Those whose head alone is left, which a list of summaries does not tell: `tombstone` where
    that says how the run ended, else `expired`.
    """
    bare = {}
    for run in runs:
        head = await view.head(run.run)
        if head is not None and (head.tombstone or head.expired):
            bare[run.run] = "tombstone" if head.tombstone else "expired"
    return bare


def _now_ms() -> int:
    return int(SystemClock().now() * 1000)


def _shown_status(run: RunSummary) -> str:
    return status_in_list(run, now_ms=_now_ms())


def _detail(run: RunSummary) -> Detail:
    try:
        return msgspec.json.decode(run.summary.detail, type=Detail)
    except msgspec.MsgspecError:
        return Detail(message="what is kept of it for lists cannot be read; use agentkit show")


def _why(run: RunSummary) -> str:
    detail = _detail(run)
    asked = "; ".join(f"{q.id}: {q.kind} {q.tool}" for q in detail.questions)
    if detail.parked:
        return f"{detail.parked}: {detail.message}{f' ({asked})' if asked else ''}"
    shown = _shown_status(run)
    if shown in _NOBODY_AT_IT:
        return f"{_NOBODY_AT_IT[shown]}{f' ({asked})' if asked else ''}"
    if run.summary.status == "submitted":
        return "no worker has begun it"
    return asked or detail.message


def _origin(parent: str, version: int) -> JSON:
    return {"run": parent, "version": version} if parent else None


def _age(run: RunSummary) -> float:
    return SystemClock().now() - run.summary.started_at / 1000


def _as_cells(run: RunSummary, *, left: str) -> tuple[str, ...]:
    summary = run.summary
    why = _LEFT[left] if left else _why(run)
    return (
        shorten(run.run, 60),
        _shown_status(run),
        shorten(summary.agent, 30),
        ago(_age(run)),
        str(summary.iteration),
        str(summary.usage.total_tokens),
        shorten(why, 80),
    )


def _as_json(run: RunSummary, *, left: str) -> dict[str, JSON]:
    summary, detail = run.summary, _detail(run)
    return {
        "run": run.run,
        "status": _shown_status(run),
        "tombstone": left == "tombstone",
        "expired": left == "expired",
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
        "after": detail.after or None,
        "forked_from": _origin(detail.forked_from, detail.forked_version),
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
