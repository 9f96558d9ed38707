"""`gc`: old runs are removed, and their space is given back."""

from __future__ import annotations

import re
from collections import Counter
from typing import NoReturn, TypedDict

from agentkit.cli.exits import FAILED, OK
from agentkit.cli.output import emit_json, one_line, say
from agentkit.cli.session import leave_with, run_command
from agentkit.core.contracts.errors import AgentkitError, InvalidSpec
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import JSON, Scope
from agentkit.core.contracts.upkeep import Reclaimed, reclaims
from agentkit.core.runtime import SystemClock
from agentkit.state.upkeep import Policy, Pruned, collect

__all__ = ["RECLAIM_SECONDS", "GcOrder", "collect_runs", "seconds_of"]

RECLAIM_SECONDS = 10.0
"""How long giving space back may keep other processes from writing."""

_AGE = re.compile(r"(\d{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_REASONS = {
    "open": "have not ended",
    "young": "are not old enough",
    "latest": "are among the latest",
    "in_doubt": "ended with a call in doubt",
    "in_use": "are held by somebody",
    "unreadable": "cannot be read",
    "moved": "changed meanwhile",
}


class GcOrder(TypedDict):
    """What a command line asks for; ages as they were written."""

    older_than: str
    tombstones: str | None
    keep_latest: int
    dry_run: bool
    no_reclaim: bool
    tenant: str | None
    user: str | None
    in_doubt: tuple[str, ...]


def collect_runs(store_url: str | None, order: GcOrder, *, as_json: bool) -> NoReturn:
    """Prune, give space back, and tell; leaves with 1 where a run cannot be read."""
    try:
        policy = _policy(order)
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        counts: Counter[str] = Counter()
        notable: list[Pruned] = []
        pruned = collect(store, policy, clock=SystemClock(), dry_run=order["dry_run"])
        async for one in pruned:
            counts[one.verdict] += 1
            if one.verdict in {"unreadable", "in_doubt"}:
                notable.append(one)
                _tell_of(one)
        space = None
        port = reclaims(store)
        if port is not None and not (order["dry_run"] or order["no_reclaim"]):
            space = await port.reclaim(limit_seconds=RECLAIM_SECONDS)
        if as_json:
            emit_json(_as_json(counts, notable, space, dry_run=order["dry_run"]))
        else:
            _tell(counts, space, dry_run=order["dry_run"])
        return FAILED if counts["unreadable"] else OK

    run_command(store_url, work, as_json=as_json)


def seconds_of(age: str, *, option: str) -> float:
    """`7d` as seconds.

    Raises:
        InvalidSpec: it has another form.
    """
    match = _AGE.fullmatch(age.strip())
    if match is None:
        raise InvalidSpec(f"{option} {age[:40]!r} must look like 90s, 30m, 12h, 7d or 2w")
    return float(int(match[1]) * _SECONDS[match[2]])


def _policy(order: GcOrder) -> Policy:
    tombstones, tenant, user = order["tombstones"], order["tenant"], order["user"]
    Scope(tenant or "", user or "").key  # noqa: B018 - an unusable one raises
    older = seconds_of(order["older_than"], option="--older-than")
    later = None
    if tombstones is not None:
        later = seconds_of(tombstones, option="--tombstones-older-than")
        if later < older:
            raise InvalidSpec("--tombstones-older-than cannot be less than --older-than")
    for run in order["in_doubt"]:
        check_id(run)
    return Policy(older, later, order["keep_latest"], tenant, order["in_doubt"], user)


def _tell_of(one: Pruned) -> None:
    place = f" of scope {one.scope!r}" if one.scope else ""
    say(f"kept {one.run!r}{place}: {one_line(_why(one))}", error=True)


def _why(one: Pruned) -> str:
    if one.error is not None:
        return str(one.error)
    return (
        f"it ended with a call in doubt ({', '.join(one.tools)}). See what became of it, then say "
        f"--in-doubt {one.run}"
    )


def _tell(counts: Counter[str], space: Reclaimed | None, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    say(
        f"{would}pruned: {counts['entombed']} runs (their results stay), "
        f"{would}deleted: {counts['deleted']} tombstones"
    )
    for verdict, reason in _REASONS.items():
        if counts[verdict]:
            say(f"kept {counts[verdict]} that {reason}")
    if space is not None:
        note = f"; {space.note}" if space.note else ""
        say(f"gave back {space.freed_bytes} bytes{note}")


def _as_json(
    counts: Counter[str], notable: list[Pruned], space: Reclaimed | None, *, dry_run: bool
) -> dict[str, JSON]:
    return {
        "dry_run": dry_run,
        "pruned": counts["entombed"],
        "deleted": counts["deleted"],
        "kept": {verdict: counts[verdict] for verdict in _REASONS},
        "to_look_at": [
            {
                "scope": one.scope,
                "run": one.run,
                "why": one.verdict,
                "message": _why(one),
            }
            for one in notable
        ],
        "freed_bytes": space.freed_bytes if space is not None else None,
        "note": space.note if space is not None else "",
    }
