"""How a run comes into a worker's hands: admit or refuse, take the lease, record the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Literal, NamedTuple

from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    RunError,
    RunIdReused,
    RunInUse,
    RunNotFound,
    RunSuspended,
    StoreError,
)
from agentkit.core.contracts.heartbeat import HeartbeatPort
from agentkit.core.contracts.ports import ClockPort, JournalPort, Lease
from agentkit.core.runtime import RunContext
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, load
from agentkit.state.journal.lease import LEASE_SECONDS, Tenure
from agentkit.state.journal.owner import is_dead

__all__ = ["POLL_SECONDS", "Claimed", "admit", "claim"]

POLL_SECONDS = 0.25
"""How often a waiting `acquire` looks whether the holder has released or died."""


class Claimed(NamedTuple):
    """A run that is ours to drive."""

    journal: Journal
    tenure: Tenure
    heartbeat: HeartbeatPort


async def claim(
    port: JournalPort,
    context: RunContext,
    spec: AgentSpec,
    *,
    task: str | None,
    owner: str,
    wait_seconds: float,
    heartbeat: HeartbeatPort,
    on_news: Callable[[], None],
    prepare: Callable[[RunState], object],
) -> Claimed | RunState:
    """Take run `context.correlation_id` to work on it; its state alone where nothing is to do.

    Args:
        port: the store, looking at the run's scope.
        context: which run.
        spec: the agent's definition, recorded where the run is new.
        task: of a run to start or continue; `None` to resume whatever is there.
        owner: names this drive in the lease.
        wait_seconds: how long to wait for a lease that somebody holds.
        heartbeat: keeps the lease.
        on_news: called by the heartbeat, see `Tenure`.
        prepare: called with the state before anything is written; may refuse by raising.

    Raises:
        RunError: the call does not fit the run, see `admit`; or another worker holds it
            (`RunInUse`, after `wait_seconds`).
    """
    run_id = context.correlation_id
    state = await load(port, run_id)
    if not admit(state, spec, task=task):
        return state
    prepare(state)
    clock = context.services.clock
    sent_at, lease, cancelled = await _acquire(
        port,
        run_id,
        owner=owner,
        wait_seconds=wait_seconds,
        clock=clock,
        elapsed=heartbeat.clock.elapsed,
    )
    tenure = Tenure(lease, sent_at=sent_at, clock=heartbeat.clock, on_news=on_news)
    claimed = Claimed(Journal(port, state, clock=clock, lease=lease), tenure, heartbeat)
    opened = await _open(claimed, port, context, spec, task=task, cancelled=cancelled)
    return claimed if opened else claimed.journal.state


async def _open(
    claimed: Claimed,
    port: JournalPort,
    context: RunContext,
    spec: AgentSpec,
    *,
    task: str | None,
    cancelled: asyncio.CancelledError | None,
) -> bool:
    """Record the start of this tenure, unless somebody was faster and nothing is left to do.

    A lease that is not going to be used is given back.
    """
    journal, tenure, heartbeat = claimed
    opened = False
    try:
        heartbeat.watch(port, tenure)
        if cancelled is not None:
            raise cancelled  # it came while the lease was on its way to us
        await journal.refresh()
        if admit(journal.state, spec, task=task):
            await journal.commit(
                lambda now: _opening(now, context, spec, task, tenure.lease), lane=""
            )
            tenure.note_seen(journal.state.seq)
            opened = True
    finally:
        if not opened:
            await _give_back(claimed)
    return opened


async def _give_back(claimed: Claimed) -> None:
    """Release a lease that is not going to be used; where the store fails it lapses by itself.

    That it was taken from a worker that died is recorded all the same: the lease is the only trace
    of an answer which that worker may have bought.
    """
    journal, tenure, heartbeat = claimed
    heartbeat.unwatch(tenure)

    def taken(now: RunState) -> Sequence[e.Body]:
        unused = now.started is None or now.end is not None
        return [] if unused or not tenure.lease.took_over else [_taken(now, tenure.lease)]

    with contextlib.suppress(StoreError, RunError):
        await journal.commit(taken, lane="", release=lambda _: True)


def admit(state: RunState, spec: AgentSpec, *, task: str | None) -> bool:
    """Whether there is something to drive.

    Raises:
        RunNotFound, RunIdReused, RunSuspended: the call does not fit the run, see `claim`.
    """
    run_id = state.run_id
    started = state.started
    if started is None:
        if task is None:
            message = f"run {run_id!r} does not exist in this store and scope; start it with run()"
            raise RunNotFound(message, run_id=run_id)
        return True
    if started.agent != spec.name:
        message = (
            f"run {run_id!r} belongs to agent {started.agent!r}, not {spec.name!r}; resume it with "
            "that agent, or use another run id"
        )
        raise RunIdReused(message, run_id=run_id)
    if task is not None and started.task != task:
        message = (
            f"run {run_id!r} was started with another task ({started.task[:80]!r}); a run keeps "
            "its task: use another run id, or resume it"
        )
        raise RunIdReused(message, run_id=run_id)
    if state.end is not None:
        return False
    if task is None:
        return True
    if state.status == "suspended":
        ids = ", ".join(question.id for question in state.questions)
        message = (
            f"run {run_id!r} waits for decisions on {ids}; answer with "
            "agent.resume(run_id, {id: decision}, ctx) or `agentkit resume`"
        )
        raise RunSuspended(message, run_id=run_id, questions=state.questions)
    return state.parked is None


def _opening(
    state: RunState, context: RunContext, spec: AgentSpec, task: str | None, lease: Lease
) -> Sequence[e.Body]:
    """The first entries of this tenure."""
    taken = _taken(state, lease)
    if state.started is not None:
        return [taken, e.Unparked(context.identity)] if state.parked is not None else [taken]
    return [
        e.RunStarted(
            task=task or "",
            agent=spec.name,
            model=spec.model,
            system=spec.system,
            tools=spec.tools,
            fingerprint=spec.fingerprint,
            nonce=context.services.chance.token()[:16],
            scope=context.scope.key,
            identity=context.identity,
            reference=spec.reference,
        ),
        taken,
    ]


def _taken(state: RunState, lease: Lease) -> e.LeaseTaken:
    """That the lease was taken, and from whom."""
    resumed: Literal["resume", "start"] = "start" if state.started is None else "resume"
    why = "takeover" if lease.took_over else resumed
    return e.LeaseTaken(lease.owner, why, lease.head.recoveries)


class _Acquired(NamedTuple):
    """A lease, when the request that it answers was sent (elapsed time), and the cancellation that
    came meanwhile.
    """

    sent_at: float
    lease: Lease
    cancelled: asyncio.CancelledError | None


async def _acquire(
    port: JournalPort,
    run_id: str,
    *,
    owner: str,
    wait_seconds: float,
    clock: ClockPort,
    elapsed: Callable[[], float],
) -> _Acquired:
    """Take the lease: at once over a holder that is proved dead, else when it lapses, waiting at
    most `wait_seconds`.
    """
    until = clock.elapsed() + wait_seconds
    supersede: int | None = None
    while True:
        sent_at = elapsed()
        try:
            request = port.acquire(run_id, owner, LEASE_SECONDS, supersede=supersede)
            return _Acquired(sent_at, *await _carried_out(request))
        except RunInUse as held:
            left = until - clock.elapsed()
            head = await port.head(run_id)
            # Ours: an earlier request was granted, and its answer was lost on the way.
            free = head is not None and (
                head.owner == owner or is_dead(head.owner, known_drives=known)
            )
            if head is not None and free and supersede != head.epoch:
                supersede = head.epoch
            elif left <= 0:
                raise
            else:
                await clock.sleep(min(left, POLL_SECONDS, max(held.expires_in_seconds, 0.01)))


async def _carried_out(
    request: Coroutine[object, object, Lease],
) -> tuple[Lease, asyncio.CancelledError | None]:
    """The request's answer, also where the caller is cancelled meanwhile: a lease that was granted
    and that nobody knows of would be kept from everybody until it lapses.
    """
    task = asyncio.ensure_future(request)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None and task.exception() is not None:
        raise cancelled
    return task.result(), cancelled
