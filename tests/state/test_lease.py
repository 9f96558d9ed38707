"""Leases from the worker's side: when it may act, what is renewed, what the heartbeat survives."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest

from agentkit.core.contracts.errors import LeaseLost, StoreMisused, StoreUnreachable
from agentkit.core.contracts.heads import Head, Lease, Renewal, Row, Summary
from agentkit.core.contracts.heartbeat import HeartbeatPort
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal import lease as module
from agentkit.state.journal.lease import (
    HEARTBEAT_SECONDS,
    IDLE_SECONDS,
    LEASE_SECONDS,
    LINGER_ROUNDS,
    MARGIN_SECONDS,
    Tenure,
    ThreadHeartbeat,
    heartbeat_for,
)

SAFE_SECONDS = LEASE_SECONDS - MARGIN_SECONDS


@dataclass
class Store:
    """As much of a store as a heartbeat sees: heads with an epoch, which tests move by hand."""

    location: str = "tiny://one"
    epochs: dict[str, int] = field(default_factory=dict)
    seqs: dict[str, int] = field(default_factory=dict)
    calls: list[set[str]] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None

    def renew(self, leases: Mapping[str, Lease]) -> dict[str, Renewal]:
        self.calls.append({lease.run for lease in leases.values()})
        self.before_answer()
        return {
            key: Renewal(
                seq=self.seqs.get(lease.run, 0),
                lost=self.epochs.get(lease.run, lease.epoch) != lease.epoch,
            )
            for key, lease in leases.items()
        }

    @property
    def port(self) -> JournalPort:
        return cast("JournalPort", self)


@pytest.fixture
def clock() -> FakeClock:
    """Stands still until the test moves it."""
    return FakeClock()


@pytest.fixture
def store() -> Store:
    """Answers at once and holds every lease it is asked about."""
    return Store()


@pytest.fixture
def heartbeat(clock: FakeClock) -> ThreadHeartbeat:
    """One that has no thread: the test calls `tick`."""
    return ThreadHeartbeat(clock=clock, start=lambda live: None)


def test_a_worker_may_act_until_the_margin_before_its_lease_could_lapse(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """F060: counted from when the acquisition was sent; at the exact instant it stops."""
    sent_at = clock.elapsed()
    clock.advance(2.0)  # the acquisition took its time
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=sent_at)

    clock.advance(SAFE_SECONDS - 2.0 - 0.001)
    tenure.check()
    clock.advance(0.001)

    assert not tenure.may_act()
    with pytest.raises(LeaseLost, match=r"lease of run 'r' \(epoch 7\).*may have lapsed") as lost:
        tenure.check()
    assert lost.value.run_id == "r"


def test_the_wall_clock_has_no_say(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """F060: ten minutes forwards or backwards neither end a lease nor lengthen it."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())

    clock.set_now(clock.now() + 600)
    assert tenure.may_act()
    clock.set_now(clock.now() - 1_200)
    clock.advance(SAFE_SECONDS)

    assert not tenure.may_act()


def test_a_renewal_counts_from_when_it_was_sent(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """A store that answers after four seconds has given us the lease four seconds ago."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())
    store.before_answer = lambda: clock.advance(4.0)

    clock.advance(5.0)
    heartbeat.tick()

    clock.advance(SAFE_SECONDS - 4.0 - 0.001)
    assert tenure.may_act()
    clock.advance(0.001)
    assert not tenure.may_act()


def test_an_answer_that_comes_too_late_allows_nothing(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """A machine that was suspended during the renewal does not believe the old answer."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())
    store.before_answer = lambda: clock.advance(3_600.0)

    heartbeat.tick()

    assert not tenure.may_act()


def test_an_older_answer_takes_nothing_back(clock: FakeClock) -> None:
    """Answers may overtake each other; the one that was sent last counts."""
    tenure = Tenure(_lease("r"), sent_at=clock.elapsed(), clock=clock)

    tenure.take(Renewal(seq=4), sent_at=clock.elapsed() + 10.0)
    tenure.take(Renewal(seq=3), sent_at=clock.elapsed() + 5.0)
    clock.advance(SAFE_SECONDS + 9.0)

    assert tenure.may_act()
    assert tenure.head_seq == 4


def test_a_short_lease_keeps_a_short_margin(clock: FakeClock) -> None:
    """The margin is at most a fifth of the lease, so that a lease of one second is of use."""
    tenure = Tenure(_lease("r", ttl_seconds=1.0), sent_at=clock.elapsed(), clock=clock)

    clock.advance(0.79)
    assert tenure.may_act()
    clock.advance(0.02)
    assert not tenure.may_act()


def test_one_round_renews_all_runs_in_one_call(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """Runs of several scopes, and two holds on runs of one name, are told apart by their keys."""
    leases = [_lease("a"), _lease("b"), _lease("b", scope="acme")]
    tenures = [_watch(heartbeat, store.port, one, sent_at=clock.elapsed()) for one in leases]
    store.seqs.update(a=3, b=5)

    heartbeat.tick()

    assert [{"a", "b"}] == store.calls
    assert [3, 5, 5] == [tenure.head_seq for tenure in tenures]


def test_nothing_to_renew_is_no_call(store: Store, heartbeat: ThreadHeartbeat) -> None:
    """A process without runs leaves the store in peace."""
    heartbeat.tick()
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=heartbeat.clock.elapsed())
    heartbeat.unwatch(tenure)
    heartbeat.unwatch(tenure)
    heartbeat.tick()

    assert [] == store.calls


def test_a_worker_that_was_replaced_stops_and_renews_no_more(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """F057: the successor's epoch decides, not the worker's name; what is lost stays lost."""
    told: list[str] = []
    tenure = _watch(
        heartbeat,
        store.port,
        _lease("r"),
        sent_at=clock.elapsed(),
        on_news=lambda: told.append("news"),
    )
    store.epochs["r"] = 8

    heartbeat.tick()
    heartbeat.tick()

    assert tenure.lost
    assert ["news"] == told
    assert 1 == len(store.calls)
    with pytest.raises(LeaseLost, match=r"run 'r' \(epoch 7\): another worker has taken it over"):
        tenure.check()


def test_the_loser_of_two_drives_stops_while_the_other_goes_on(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """F061: also in one process and heartbeat, the older epoch of a run loses and stops."""
    older = _watch(heartbeat, store.port, _lease("r", epoch=7), sent_at=clock.elapsed())
    newer = _watch(heartbeat, store.port, _lease("r", epoch=8), sent_at=clock.elapsed())
    store.epochs["r"] = 8

    heartbeat.tick()

    assert not older.may_act()
    assert newer.may_act()


def test_a_store_outage_stops_the_drives_and_not_the_heartbeat(
    clock: FakeClock,
    store: Store,
    heartbeat: ThreadHeartbeat,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """F060: while the store is away nothing starts; one warning per outage; then it goes on."""
    caplog.set_level(logging.INFO, logger=module.__name__)
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())

    def away() -> None:
        raise StoreUnreachable("the store is away")

    for _ in range(2):
        store.before_answer = away
        for _ in range(3):
            clock.advance(HEARTBEAT_SECONDS)
            heartbeat.tick()
        assert not tenure.may_act()
        assert not tenure.lost
        store.before_answer = lambda: None
        clock.advance(HEARTBEAT_SECONDS)
        heartbeat.tick()
        assert tenure.may_act()

    assert [logging.WARNING, logging.INFO] * 2 == [record.levelno for record in caplog.records]
    assert "the store is away" in caplog.records[0].getMessage()


def test_a_drivers_own_error_is_survived_and_not_quoted(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown error may hold a connection string; the log names its type alone."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())

    def fail() -> None:
        raise OSError("postgresql://me:pass" + "word@db")

    store.before_answer = fail
    heartbeat.tick()
    store.before_answer = lambda: None
    clock.advance(HEARTBEAT_SECONDS)
    heartbeat.tick()
    clock.advance(SAFE_SECONDS - 0.001)

    assert tenure.may_act()
    assert "OSError" in caplog.text
    assert "password" not in caplog.text


def test_a_store_that_forgets_a_run_in_its_answer_has_not_renewed_it(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is no confirmation."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())
    monkeypatch.setattr(store, "renew", lambda leases: {})

    clock.advance(HEARTBEAT_SECONDS)
    heartbeat.tick()
    clock.advance(SAFE_SECONDS - HEARTBEAT_SECONDS)

    assert not tenure.may_act()


@pytest.mark.parametrize(
    ("acts", "renewed_until_seconds"),
    [
        pytest.param([], IDLE_SECONDS, id="nothing said yet"),
        pytest.param([5.0], IDLE_SECONDS, id="short act"),
        pytest.param([1_000.0, 700.0], 1_000.0, id="two at once"),
        pytest.param([700.0, 1_000.0], 1_000.0, id="two in the other order"),
    ],
)
def test_a_run_is_renewed_until_its_longest_act_is_overdue(
    acts: list[float],
    renewed_until_seconds: float,
    clock: FakeClock,
    store: Store,
    heartbeat: ThreadHeartbeat,
) -> None:
    """An act that outlives its own deadline hangs, and its run is let go."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())
    for seconds in acts:
        tenure.busy(seconds)

    clock.advance(renewed_until_seconds - 0.001)
    heartbeat.tick()
    assert [{"r"}] == store.calls
    clock.advance(0.001)
    heartbeat.tick()

    assert [{"r"}] == store.calls


def test_a_drive_that_moves_again_is_renewed_again(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """A consumer that comes back after a long pause finds its run, if nobody took it."""
    tenure = _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())
    clock.advance(2 * IDLE_SECONDS)
    heartbeat.tick()
    assert [] == store.calls

    tenure.idle()
    heartbeat.tick()

    assert [{"r"}] == store.calls
    assert tenure.may_act()


def test_news_are_what_the_drive_has_not_seen(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """A note of somebody else wakes the drive, once; its own entries do not."""
    told: list[int] = []
    tenure = _watch(
        heartbeat,
        store.port,
        _lease("r", seq=4),
        sent_at=clock.elapsed(),
        on_news=lambda: told.append(tenure.head_seq),
    )

    for seq in (4, 5):
        tenure.note_seen(seq)
        store.seqs["r"] = seq
        heartbeat.tick()
    assert [] == told
    store.seqs["r"] = 6
    heartbeat.tick()
    heartbeat.tick()

    assert [6] == told


def test_a_drive_whose_loop_is_closed_does_not_harm_the_others(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    """What `on_news` raises is logged, and the next run hears its own news."""
    closed = asyncio.new_event_loop()
    closed.close()
    told: list[str] = []

    def wake() -> None:
        closed.call_soon_threadsafe(told.append, "a")

    _watch(heartbeat, store.port, _lease("a"), sent_at=clock.elapsed(), on_news=wake)
    _watch(
        heartbeat,
        store.port,
        _lease("b"),
        sent_at=clock.elapsed(),
        on_news=lambda: told.append("b"),
    )
    store.seqs.update(a=1, b=1)

    heartbeat.tick()

    assert ["b"] == told
    assert "run 'a' could not be told" in caplog.text


def test_after_unwatch_an_answer_that_was_under_way_is_not_told(
    clock: FakeClock, store: Store, heartbeat: ThreadHeartbeat
) -> None:
    """A drive that releases its lease is not told that the lease is lost."""
    told: list[str] = []
    tenure = _watch(
        heartbeat,
        store.port,
        _lease("r"),
        sent_at=clock.elapsed(),
        on_news=lambda: told.append("news"),
    )

    def release_meanwhile() -> None:
        heartbeat.unwatch(tenure)
        store.epochs["r"] = 0

    store.before_answer = release_meanwhile
    heartbeat.tick()

    assert [] == told
    assert not tenure.lost


def test_a_hung_store_holds_up_no_other() -> None:
    """Each store has a thread of its own: one hangs in `renew`, the other's run hears its news."""
    hangs, release, heard = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        assert release.wait(60)

    bad = Store(location="tiny://bad", before_answer=hang)
    good = Store(location="tiny://good", seqs={"r": 1})
    on_bad, on_good = (ThreadHeartbeat(wait=lambda seconds: None) for _ in range(2))
    bad_tenure = _watch(on_bad, bad.port, _lease("r"), sent_at=on_bad.clock.elapsed())
    assert hangs.wait(60)

    good_tenure = _watch(
        on_good, good.port, _lease("r"), sent_at=on_good.clock.elapsed(), on_news=heard.set
    )
    assert heard.wait(60)

    on_bad.unwatch(bad_tenure)  # is not held up either
    on_good.unwatch(good_tenure)
    release.set()


def test_the_thread_waits_between_rounds_and_ends_when_nothing_is_left(
    clock: FakeClock, store: Store
) -> None:
    """It rests for what the round has left of the interval, and a new run starts a new thread."""
    starts: list[Callable[[], None]] = []
    rests: list[float] = []
    heartbeat = ThreadHeartbeat(clock=clock, wait=rests.append, start=starts.append)
    tenure = _watch(heartbeat, store.port, _lease("a"), sent_at=clock.elapsed())
    other = _watch(heartbeat, store.port, _lease("b"), sent_at=clock.elapsed())
    assert 1 == len(starts)

    slow = iter([2.0, 7.0])

    def answer_slowly() -> None:
        clock.advance(next(slow))
        if len(store.calls) == 2:
            heartbeat.unwatch(tenure)
            heartbeat.unwatch(other)

    store.before_answer = answer_slowly
    starts[0]()  # returns: the thread has ended

    assert [5.0, 3.0, 0.0] == rests[:3]
    assert [5.0] * (LINGER_ROUNDS - 2) == rests[3:]
    _watch(heartbeat, store.port, _lease("c"), sent_at=clock.elapsed())
    assert 2 == len(starts)


def test_a_thread_that_cannot_start_leaves_nothing_watched(clock: FakeClock, store: Store) -> None:
    """The caller gets the error and may try again."""

    def refuse(live: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    heartbeat = ThreadHeartbeat(clock=clock, start=refuse)

    for _ in range(2):
        with pytest.raises(RuntimeError, match="new thread"):
            _watch(heartbeat, store.port, _lease("r"), sent_at=clock.elapsed())
    heartbeat.tick()

    assert [] == store.calls


def test_a_heartbeat_serves_one_store(clock: FakeClock, heartbeat: ThreadHeartbeat) -> None:
    """A second one would wait for the first one's hangs."""
    port: HeartbeatPort = heartbeat
    _watch(port, Store().port, _lease("r"), sent_at=clock.elapsed())
    _watch(port, Store().port, _lease("s"), sent_at=clock.elapsed())

    with pytest.raises(StoreMisused, match="one heartbeat per store"):
        _watch(port, Store(location="tiny://two").port, _lease("r"), sent_at=clock.elapsed())


def test_a_process_has_one_heartbeat_per_store() -> None:
    """Two objects on the same data share it; it goes when nobody needs it."""
    first = heartbeat_for(Store(location="tiny://a").port)

    assert first is heartbeat_for(Store(location="tiny://a").port)
    assert first is not heartbeat_for(Store(location="tiny://b").port)
    del first
    gc.collect()
    assert "tiny://a" not in module._by_location


async def test_a_replaced_worker_can_neither_renew_nor_write_nor_release(clock: FakeClock) -> None:
    """F057: a worker stalls past its lease and is replaced by one of the same name."""
    store = InMemoryCheckpointStore(clock=clock)
    heartbeat = ThreadHeartbeat(clock=clock, start=lambda live: None)
    stalled = await store.acquire("r", "worker-1", LEASE_SECONDS)
    tenure = _watch(heartbeat, store, stalled, sent_at=clock.elapsed())
    clock.advance(LEASE_SECONDS)
    successor = await store.acquire("r", "worker-1", LEASE_SECONDS)
    assert not tenure.may_act()  # before it has heard of anything

    heartbeat.tick()

    assert tenure.lost
    for release in (False, True):
        with pytest.raises(LeaseLost):
            await store.append(
                "r", _rows(), after=0, lease=stalled, summary=Summary("running"), release=release
            )
    head = await store.head("r")
    assert head is not None
    assert (successor.epoch, True, 0) == (head.epoch, head.held, head.seq)


@pytest.mark.parametrize("wall_clock_off_by_seconds", [-600.0, 600.0])
async def test_no_instant_allows_two_workers_to_act(wall_clock_off_by_seconds: float) -> None:
    """F060: while the store is away from the worker, it stops before anybody could take over."""
    stores_clock, workers_clock = FakeClock(), FakeClock(elapsed=77.0)
    workers_clock.set_now(workers_clock.now() + wall_clock_off_by_seconds)
    store = InMemoryCheckpointStore(clock=stores_clock)
    heartbeat = ThreadHeartbeat(clock=workers_clock, start=lambda live: None)
    sent_at = workers_clock.elapsed()
    lease = await store.acquire("r", "worker-1", LEASE_SECONDS)
    tenure = _watch(heartbeat, store, lease, sent_at=sent_at)

    seen: list[tuple[bool, bool]] = []
    for step in range(120):  # in quarters of a second; the heartbeat reaches the store twice
        if step in {20, 40}:
            heartbeat.tick()
        head = await store.head("r")
        assert head is not None
        seen.append((tenure.may_act(), not head.held))
        for clock in (stores_clock, workers_clock):
            clock.advance(0.25)

    assert (True, True) not in seen
    assert 40 + SAFE_SECONDS * 4 == sum(may_act for may_act, _ in seen)
    assert seen[-1] == (False, True)


async def test_a_note_reaches_a_live_worker_with_the_next_round(clock: FakeClock) -> None:
    """Somebody cancels, decides or sends a message: the drive hears that the head moved."""
    store = InMemoryCheckpointStore(clock=clock)
    heartbeat = ThreadHeartbeat(clock=clock, start=lambda live: None)
    lease = await store.acquire("r", "worker-1", LEASE_SECONDS)
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    tenure = _watch(heartbeat, store, lease, sent_at=clock.elapsed(), on_news=wake)
    await store.append("r", _rows(), after=0, lease=None, summary=Summary("running"))

    await asyncio.to_thread(heartbeat.tick)
    await woken.wait()

    assert 1 == tenure.head_seq
    assert tenure.may_act()


FORKS = """
import os, threading
from agentkit.core.contracts.heads import Head, Lease, Renewal
from agentkit.state.journal.lease import Tenure, heartbeat_for

class Store:
    @property
    def location(self):
        return f"tiny://{os.getpid()}"
    def __init__(self):
        self.renewed = threading.Event()
        self.by = []
    def renew(self, leases):
        self.by.append((os.getpid(), [lease.run for lease in leases.values()]))
        self.renewed.set()
        return {key: Renewal(seq=0) for key in leases}

def watch(run):
    lease = Lease(run=run, owner="o", epoch=1, ttl_seconds=15.0, head=Head(run=run))
    tenure = Tenure(lease, sent_at=heartbeat.clock.elapsed(), clock=heartbeat.clock)
    heartbeat.watch(store, tenure)
    return tenure

store = Store()
heartbeat = heartbeat_for(store)
heartbeat._interval_seconds = 0.0
theirs = watch("parent's")
assert store.renewed.wait(60)
held, done = threading.Event(), threading.Event()

def hold():  # a fork may come while any thread holds the lock
    with heartbeat._lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
pid = os.fork()
if pid == 0:
    assert theirs.lost and not theirs.may_act()
    assert heartbeat_for(store) is not heartbeat
    assert threading.active_count() == 1
    store = Store()
    ours = watch("child's")
    assert store.renewed.wait(60)
    assert ours.may_act()
    assert store.by[0] == (os.getpid(), ["child's"]), store.by
    os._exit(0)
done.set()
assert theirs.may_act()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_forked_child_starts_with_nothing() -> None:
    """It holds none of its parent's leases, has no thread, and renews its own runs alone."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], check=False, timeout=100)

    assert done.returncode == 0


def _watch(
    heartbeat: HeartbeatPort,
    port: JournalPort,
    lease: Lease,
    *,
    sent_at: float,
    on_news: Callable[[], None] | None = None,
) -> Tenure:
    tenure = Tenure(lease, sent_at=sent_at, clock=heartbeat.clock, on_news=on_news)
    heartbeat.watch(port, tenure)
    return tenure


def _rows() -> list[Row]:
    return [Row(1, b"{}", bytes(8))]


def _lease(
    run: str,
    *,
    epoch: int = 7,
    seq: int = 0,
    scope: str = "",
    ttl_seconds: float = LEASE_SECONDS,
) -> Lease:
    head = Head(run=run, seq=seq, epoch=epoch, owner="me")
    return Lease(run, "me", epoch, ttl_seconds, head, scope=scope)
