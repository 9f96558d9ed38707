"""How a run comes into a worker's hands: admit or refuse, take the lease, record the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Literal, NamedTuple

import msgspec

from agentkit.agents.leftovers import kill_leftovers
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
from agentkit.core.contracts.heads import Head, Lease, Summary
from agentkit.core.contracts.heartbeat import HeartbeatPort
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.runtime import RunContext
from agentkit.state.checkpoints.places import missing_file
from agentkit.state.journal.detail import Detail
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, load
from agentkit.state.journal.lease import LEASE_SECONDS, Tenure
from agentkit.state.journal.owner import is_dead
from agentkit.state.journal.waits import is_due
from agentkit.state.journal.working import WorkingJournal

__all__ = ["POLL_SECONDS", "RECOVERIES_TEXT", "Claimed", "admit", "claim"]

POLL_SECONDS = 0.25
"""How often a waiting `acquire` looks whether the holder has released or died."""


RECOVERIES_TEXT = (
    "{died} workers in a row died at this run without getting any further, so it is not tried "
    "again by itself. `agentkit show {run}` tells where they were; mend what kills them, then "
    "`agentkit unpark {run}`, or resume it."
)


class Claimed(NamedTuple):
    """A run that is ours to drive."""

    journal: WorkingJournal
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
    state = RunState(run_id)
    head = await port.head(run_id) if missing_file(port) is None else None  # to look makes no file
    if head is not None and _has_died(head):  # it is claimed, and so counted, before it is read
        _refuse_unread(run_id, head.summary, spec, task)
    else:
        state = await load(port, run_id) if head is not None else state
        if not admit(state, spec, task=task, now_ms=_now_ms(context)):
            return state
        prepare(state)
    clock, elapsed = context.services.clock, heartbeat.clock.elapsed
    sent_at, lease, cancelled = await _acquire(
        port, run_id, owner=owner, wait_seconds=wait_seconds, clock=clock, elapsed=elapsed
    )
    tenure = Tenure(lease, sent_at=sent_at, clock=heartbeat.clock, on_news=on_news)
    if _kills_workers(lease, limit=context.services.max_recoveries):
        return await _park(port, lease, clock=clock, cancelled=cancelled)
    claimed = Claimed(WorkingJournal(port, state, clock=clock, lease=lease), tenure, heartbeat)
    opening = _Opening(port, context, spec, task, prepare)
    opened = await opening.open(claimed, cancelled=cancelled)
    return claimed if opened else claimed.journal.state


def _has_died(head: Head) -> bool:
    """Whether whoever held the run last has left it without a word."""
    return bool(head.owner) and (not head.held or is_dead(head.owner, known_drives=known))


def _refuse_unread(run_id: str, summary: Summary | None, spec: AgentSpec, task: str | None) -> None:
    """Refuse what the head alone shows not to fit; where there are entries, `admit` looks at the
    whole run later.
    """
    if summary is None or not summary.agent:
        return
    if summary.agent != spec.name:
        raise _other_agent(run_id, summary.agent, spec)
    begun = msgspec.json.decode(summary.detail, type=Detail).task
    if task is not None and begun and begun != task[: len(begun)]:
        raise _other_task(run_id, begun)


def _kills_workers(lease: Lease, *, limit: int) -> bool:
    """Whether too many have died at the run; one that was never begun holds nothing to park, and to
    carry a cancel out makes none of the acts that may have killed them.
    """
    summary = lease.head.summary
    if summary is None or msgspec.json.decode(summary.detail, type=Detail).cancelling:
        return False
    return lease.took_over and lease.head.seq > 0 and lease.head.recoveries > limit


async def _park(
    port: JournalPort, lease: Lease, *, clock: ClockPort, cancelled: asyncio.CancelledError | None
) -> RunState:
    """Park a run that kills its workers; it is not read, since that may be what kills them. Then
    raise the cancellation that came before.
    """
    state = RunState.unread(lease.head)
    journal = Journal(port, state, clock=clock, lease=lease)
    died = lease.head.recoveries
    text = RECOVERIES_TEXT.format(died=died, run=lease.run)
    bodies: list[e.Body] = [_taken(state, lease), e.Parked("recoveries", text)]
    await journal.commit(lambda _: bodies, lane="", release=lambda _: True)
    if cancelled is not None:
        raise cancelled
    return state


class _Opening(NamedTuple):
    """What a claim was asked for."""

    port: JournalPort
    context: RunContext
    spec: AgentSpec
    task: str | None
    prepare: Callable[[RunState], object]

    async def open(self, claimed: Claimed, *, cancelled: asyncio.CancelledError | None) -> bool:
        """Record the start of this tenure, unless somebody was faster and nothing is left to do.

        A lease that is not going to be used is given back.
        """
        journal, tenure, heartbeat = claimed
        opened = False
        try:
            heartbeat.watch(self.port, tenure)
            if cancelled is not None:
                raise cancelled  # it came while the lease was on its way to us
            if await self._is_wanted(journal):
                kill_leftovers(journal.state)
                await journal.commit(lambda now: self._first(now, tenure.lease), lane="")
                tenure.note_seen(journal.state.seq)
                opened = True
        finally:
            if not opened:
                await _give_back(claimed)
        return opened

    async def _is_wanted(self, journal: Journal) -> bool:
        if journal.state.seq:
            await journal.refresh()
            return self._admits(journal.state)
        journal.state = await load(self.port, self.context.correlation_id)
        wanted = self._admits(journal.state)
        if wanted:
            self.prepare(journal.state)
        return wanted

    def _admits(self, state: RunState) -> bool:
        return admit(state, self.spec, task=self.task, now_ms=_now_ms(self.context))

    def _first(self, state: RunState, lease: Lease) -> Sequence[e.Body]:
        """The first entries of this tenure."""
        context, spec = self.context, self.spec
        taken = _taken(state, lease)
        if state.started is not None and (state.parked is None or state.cancel is not None):
            return [taken]
        if state.started is not None:
            return [taken, e.Unparked(context.identity)]
        return [
            e.RunStarted(
                task=self.task or "",
                agent=spec.name,
                model=spec.model,
                system=spec.system,
                tools=spec.tools,
                fingerprint=spec.fingerprint,
                nonce=context.services.chance.token()[:16],
                scope=context.scope.key,
                identity=context.identity,
                reference=spec.reference,
                autonomy="" if context.autonomy == "gated" else context.autonomy,
            ),
            taken,
        ]


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


def admit(state: RunState, spec: AgentSpec, *, task: str | None, now_ms: int) -> bool:
    """Whether there is something to drive at `now_ms` (ms since the epoch).

    Raises:
        RunNotFound, RunIdReused, RunSuspended: the call does not fit the run, see `claim`.
    """
    run_id = state.run_id
    started = state.started
    if started is None:
        if state.end is not None:  # a tombstone
            _refuse_unread(run_id, state.base, spec, task)
            return False
        if task is None:
            message = f"run {run_id!r} does not exist in this store and scope; start it with run()"
            raise RunNotFound(message, run_id=run_id)
        return True
    if started.agent != spec.name:
        raise _other_agent(run_id, started.agent, spec)
    if task is not None and started.task != task:
        raise _other_task(run_id, started.task)
    if state.end is not None:
        return False
    waits = state.status == "suspended" and not is_due(state.lanes.values(), now_ms)
    if task is None or state.cancel is not None:
        return state.cancel is not None or not waits
    if waits:
        ids = ", ".join(question.id for question in state.questions)
        message = (
            f"run {run_id!r} waits for decisions on {ids}; answer with "
            "agent.resume(run_id, {id: decision}, ctx) or `agentkit resume`"
        )
        if not ids:
            what = ", ".join(wait.event or wait.name for wait in state.waits)
            message = f"run {run_id!r} waits for {what}; resume it once that has come"
        raise RunSuspended(message, run_id=run_id, questions=state.questions)
    return state.parked is None


def _now_ms(context: RunContext) -> int:
    return int(context.services.clock.now() * 1000)


def _other_agent(run_id: str, agent: str, spec: AgentSpec) -> RunIdReused:
    message = (
        f"run {run_id!r} belongs to agent {agent!r}, not {spec.name!r}; resume it with that agent, "
        "or use another run id"
    )
    return RunIdReused(message, run_id=run_id)


def _other_task(run_id: str, task: str) -> RunIdReused:
    message = (
        f"run {run_id!r} was started with another task ({task[:80]!r}); a run keeps its task: use "
        "another run id, or resume it"
    )
    return RunIdReused(message, run_id=run_id)


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
