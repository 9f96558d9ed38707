"""Running the checks on a store."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentkit.testing.conformance._append import append
from agentkit.testing.conformance._contention import contention
from agentkit.testing.conformance._due import due
from agentkit.testing.conformance._fencing import fencing
from agentkit.testing.conformance._handles import handles
from agentkit.testing.conformance._ids import ids
from agentkit.testing.conformance._leases import leases
from agentkit.testing.conformance._lists import lists
from agentkit.testing.conformance._notes import notes
from agentkit.testing.conformance._processes import processes
from agentkit.testing.conformance._random import randomly
from agentkit.testing.conformance._repeats import repeats
from agentkit.testing.conformance._retention import retention
from agentkit.testing.conformance._scopes import scopes
from agentkit.testing.conformance._slots import slots
from agentkit.testing.conformance._transactions import transactions
from agentkit.testing.conformance._values import values
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Check
from agentkit.testing.conformance.expect import Broken
from agentkit.testing.conformance.harness import Harness, lacking
from agentkit.testing.conformance.report import Report, Verdict

__all__ = ["CHECKS", "DEADLINE_SECONDS", "NotOffered", "check_store", "run_check"]

CHECKS: tuple[Check, ...] = tuple(
    check
    for subject in (
        slots,
        append,
        notes,
        repeats,
        leases,
        fencing,
        lists,
        due,
        scopes,
        ids,
        retention,
        handles,
        contention,
        randomly,
        processes,
        values,
        transactions,
    )
    for check in subject.checks
)
"""All checks, in the order in which they are best mended."""

DEADLINE_SECONDS = 300.0
"""How long one check may take; a store that has not answered by then has hung."""

_HERE = Path(__file__).parent


class NotOffered(Exception):
    """The store does not have what the check needs; the message says what, and why."""


async def run_check(check: Check, harness: Harness) -> None:
    """Run one check on a new place.

    Raises:
        Broken: the promise is not kept.
        NotOffered: the check does not apply.
        Exception: whatever the store raised where it should not have.
    """
    async with _bench(harness) as bench:
        missing = lacking(harness, bench.port, bench.place)
        for need in check.needs:
            if need in missing:
                raise NotOffered(f"{need}: {missing[need]}")
        task = asyncio.ensure_future(check.run(bench))
        done, _ = await asyncio.wait({task}, timeout=DEADLINE_SECONDS)
        if not done:
            task.cancel()
            raise Broken(f"it did not end within {DEADLINE_SECONDS:g} seconds")
        task.result()


async def check_store(
    harness: Harness, *, checks: Sequence[Check] = CHECKS, thorough: bool = False
) -> Report:
    """Run checks on a store, one after the other, each on a place of its own.

    Args:
        harness: how to come to the store.
        checks: which ones.
        thorough: whether to run those that take long too.
    """
    chosen = [check for check in checks if thorough or not check.slow]
    return Report(harness.name, [await _judge(check, harness) for check in chosen])


async def _judge(check: Check, harness: Harness) -> Verdict:
    try:
        await run_check(check, harness)
    except NotOffered as exc:
        return Verdict.on(check, "not offered", str(exc))
    except Broken as exc:
        return Verdict.on(check, "broken", f"{exc}\n{_where(exc)}")
    except Exception as exc:  # noqa: BLE001 - a store may raise anything, and the report says so
        return Verdict.on(check, "broken", f"raised {type(exc).__name__}: {exc}\n{_where(exc)}")
    return Verdict.on(check, "kept")


@asynccontextmanager
async def _bench(harness: Harness) -> AsyncIterator[Bench]:
    bench = Bench(harness, await harness.new_place())
    try:
        yield bench
    finally:
        await bench.clear()


def _where(error: BaseException) -> str:
    """The line of the check that saw it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent == _HERE and Path(frame.filename).stem.startswith("_")
    ]
    return f"seen in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
