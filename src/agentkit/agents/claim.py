"""How a run comes into a worker's hands: admit or refuse, take the lease, record the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Literal, NamedTuple

import msgspec

from agentkit.agents.admitting import Wanted, admit, refuse_unread
from agentkit.agents.leftovers import kill_leftovers
from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import (
    RunError,
    RunIdReused,
    RunInUse,
    RunNotFound,
    StoreError,
)
from agentkit.core.contracts.heads import Head, Lease
from agentkit.core.contracts.heartbeat import HeartbeatPort
from agentkit.core.contracts.ports import ClockPort, JournalPort
from agentkit.core.runtime import RunContext
from agentkit.state.checkpoints.places import missing_file
from agentkit.state.journal.carry import Conversation, begin_after, ended_conversation
from agentkit.state.journal.detail import Detail
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import Journal, load
from agentkit.state.journal.lease import LEASE_SECONDS, Tenure
from agentkit.state.journal.owner import is_dead
from agentkit.state.journal.working import WorkingJournal

__all__ = ["POLL_SECONDS", "RECOVERIES_TEXT", "Claimed", "claim"]

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
    wanted: Wanted,
    *,
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
        wanted: what for.
        owner: names this drive in the lease.
        wait_seconds: how long to wait for a lease that somebody holds.
        heartbeat: keeps the lease.
        on_news: called by the heartbeat, see `Tenure`.
        prepare: called with the state before anything is written; may refuse by raising.

    Raises:
        RunError: the call does not fit the run, see `admit`; or another worker holds it
            (`RunInUse`, after `wait_seconds`).
        RunUnfinished, VersionNotFound: the run `after` cannot be carried on.
    """
    run_id = context.correlation_id
    state, past, asked_for = await _looked_at(port, context, spec, wanted, prepare)
    if not asked_for:
        return state
    above = past.state.epoch if past is not None else 0
    timing = _Timing(context.services.clock, heartbeat.clock.elapsed, wait_seconds)
    sent_at, lease, cancelled = await _acquire(port, run_id, timing, owner=owner, above=above)
    tenure = Tenure(lease, sent_at=sent_at, clock=heartbeat.clock, on_news=on_news)
    if _kills_workers(lease, limit=context.services.max_recoveries):
        return await _park(port, lease, clock=timing.clock, cancelled=cancelled)
    journal = WorkingJournal(port, state, clock=timing.clock, lease=lease)
    claimed = Claimed(journal, tenure, heartbeat)
    opening = _Opening(port, context, spec, wanted, past, prepare)
    opened = await opening.open(claimed, cancelled=cancelled)
    return claimed if opened else claimed.journal.state


async def _looked_at(
    port: JournalPort,
    context: RunContext,
    spec: AgentSpec,
    wanted: Wanted,
    prepare: Callable[[RunState], object],
) -> tuple[RunState, Conversation | None, bool]:
    """The run before it is claimed, the conversation that it is to carry on where it is not there
    yet, and whether there is anything to drive.
    """
    run_id = context.correlation_id
    state = RunState(run_id)
    head = await port.head(run_id) if missing_file(port) is None else None  # to look makes no file
    past: Conversation | None = None
    if wanted.after and (head is None or head.seq == 0):
        past = await _past(port, run_id, spec, wanted.after)
    if head is not None and _has_died(head):  # it is claimed, and so counted, before it is read
        refuse_unread(run_id, head.summary, spec, wanted)
    else:
        state = await load(port, run_id) if head is not None else state
        if not admit(state, spec, wanted, now_ms=_now_ms(context)):
            return state, past, False
        prepare(state if past is None else past.state)
    return state, past, True


def _has_died(head: Head) -> bool:
    """Whether whoever held the run last has left it without a word."""
    return bool(head.owner) and (not head.held or is_dead(head.owner, known_drives=known))


async def _past(port: JournalPort, run_id: str, spec: AgentSpec, after: str) -> Conversation:
    """The conversation that a run which is not there yet carries on.

    Raises:
        RunNotFound, RunUnfinished, VersionNotFound: see `ended_conversation`.
        RunIdReused: it was another agent's.
    """
    if missing_file(port) is not None:
        raise RunNotFound(f"run {after!r} does not exist: there is no store yet", run_id=after)
    past = await ended_conversation(port, after, run_id)
    agent = past.state.started.agent if past.state.started is not None else ""
    if agent != spec.name:
        message = f"run {after!r} was a conversation with agent {agent!r}, not {spec.name!r}"
        raise RunIdReused(f"{message}; carry it on with that agent", run_id=after)
    return past


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
    wanted: Wanted
    past: Conversation | None
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
                await self._begin(journal, tenure.lease)
                tenure.note_seen(journal.state.seq)
                opened = True
        finally:
            if not opened:
                await _give_back(claimed)
        return opened

    async def _begin(self, journal: Journal, lease: Lease) -> None:
        if self.past is None or journal.state.seq:
            await journal.commit(lambda now: self._first(now, lease), lane="")
            return
        bodies: list[e.Body] = [self._carried_on(self.past), _taken(journal.state, lease)]
        journal.state = await begin_after(
            self.port, lease, self.past, bodies, clock=self.context.services.clock
        )

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
        return admit(state, self.spec, self.wanted, now_ms=_now_ms(self.context))

    def _carried_on(self, past: Conversation) -> e.Forked:
        context = self.context
        return e.Forked(
            past.run_id,
            past.state.main.version + 1,
            context.services.chance.token()[:16],
            task=self.wanted.task or "",
            identity=context.identity,
            reference=self.spec.reference,
            autonomy=_recorded_autonomy(context),
        )

    def _first(self, state: RunState, lease: Lease) -> Sequence[e.Body]:
        """The first entries of this tenure."""
        context, spec, submitted = self.context, self.spec, state.submitted
        taken: list[e.Body] = [_taken(state, lease)]
        wakes = self.wanted.unparks and self.wanted.task is None
        if wakes and state.stuck is not None and state.cancel is None:
            taken.append(e.Unparked(context.identity))
        if state.started is not None:
            return taken
        if submitted is not None:  # perhaps since we looked
            self._admits(state)
        return [
            e.RunStarted(
                task=self.wanted.task or state.task,
                agent=spec.name,
                model=spec.model,
                system=spec.system,
                tools=spec.tools,
                fingerprint=spec.fingerprint,
                nonce=context.services.chance.token()[:16],
                scope=context.scope.key,
                identity=context.identity if submitted is None else submitted.identity,
                reference=spec.reference,
                autonomy=_recorded_autonomy(context) if submitted is None else submitted.autonomy,
            ),
            *taken,
        ]


def _recorded_autonomy(context: RunContext) -> str:
    return "" if context.autonomy == "gated" else context.autonomy


async def _give_back(claimed: Claimed) -> None:
    """Release a lease that is not going to be used; where the store fails it lapses by itself.

    That it was taken from a worker that died is recorded all the same: the lease is the only trace
    of an answer which that worker may have bought.
    """
    journal, tenure, heartbeat = claimed
    heartbeat.unwatch(tenure)

    def taken(now: RunState) -> Sequence[e.Body]:
        unused = (now.started or now.submitted) is None or now.end is not None
        return [] if unused or not tenure.lease.took_over else [_taken(now, tenure.lease)]

    with contextlib.suppress(StoreError, RunError):
        await journal.commit(taken, lane="", release=lambda _: True)


def _now_ms(context: RunContext) -> int:
    return int(context.services.clock.now() * 1000)


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


class _Timing(NamedTuple):
    """By which clocks a lease is waited for, and how long."""

    clock: ClockPort
    elapsed: Callable[[], float]
    wait_seconds: float


async def _acquire(
    port: JournalPort, run_id: str, timing: _Timing, *, owner: str, above: int
) -> _Acquired:
    """Take the lease: at once over a holder that is proved dead, else when it lapses, waiting at
    most `wait_seconds`.
    """
    clock = timing.clock
    until = clock.elapsed() + timing.wait_seconds
    supersede: int | None = None
    while True:
        sent_at = timing.elapsed()
        try:
            request = port.acquire(run_id, owner, LEASE_SECONDS, supersede=supersede, above=above)
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
