"""Appending: one atomic unit, compared and set, repeated without harm, carried to its end."""

import asyncio
import threading

import pytest

from agentkit.core.contracts.errors import (
    EntryTooLarge,
    HeadMoved,
    InvalidId,
    LeaseLost,
    NoteRefused,
    StoreMisused,
)
from agentkit.core.contracts.heads import Row, RunStatus, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope, Usage
from agentkit.core.testing.clock import FakeClock
from agentkit.state.journal.codec import MAX_ENTRY_BYTES
from tests.state.stores.helpers import TTL_SECONDS, row, rows, started, summary


async def test_what_is_appended_is_read_back_byte_for_byte(store: JournalPort) -> None:
    """Bodies and checksums are opaque: zero bytes, invalid UTF-8 and emptiness included."""
    bodies = [b"\x00\xff\xfe", b"", b'{"a":1}', bytes(range(256)) * 40]
    given = [Row(seq, body, bytes(8)) for seq, body in enumerate(bodies, 1)]
    lease = await store.acquire("r", "worker", TTL_SECONDS)

    await store.append("r", given, after=0, lease=lease, summary=summary())

    assert given == await store.read("r")


async def test_an_append_moves_the_head(store: JournalPort) -> None:
    """The head says where the journal ends, with which checksum, and what the fold said."""
    made = summary("suspended", detail=b'{"open":1}')
    lease = await store.acquire("r", "worker", TTL_SECONDS)

    head = await store.append("r", rows(1, 3), after=0, lease=lease, summary=made)

    assert (3, row(3).check, lease.epoch, made) == (head.seq, head.check, head.epoch, head.summary)
    assert head == await store.head("r")


async def test_a_summary_is_kept_whole(store: JournalPort) -> None:
    """Every field of the summary comes back, up to the largest integers."""
    made = Summary(
        "parked",
        agent="böt 'x'\"",
        iteration=2**40,
        usage=Usage(2**62, 2, 3, 4, 5),
        started_at=1_700_000_000_000,
        updated_at=2**62,
        recoveries=3,
        detail=b"\x00any bytes",
    )
    lease = await store.acquire("r", "worker", TTL_SECONDS)
    await store.append("r", rows(1), after=0, lease=lease, summary=made)

    head = await store.head("r")

    assert head is not None
    assert (made, 3) == (head.summary, head.recoveries)


async def test_reading_goes_by_position(store: JournalPort) -> None:
    """`after` and `limit` cut the journal; seq 10 comes after 9."""
    await started(store, "r", 12)

    assert rows(9, 3) == await store.read("r", after=8, limit=3)
    assert [] == await store.read("r", after=12)
    assert [] == await store.read("r", limit=0)
    assert [] == await store.read("unknown")


@pytest.mark.parametrize("after", [0, 1, 3, 4])
async def test_an_append_elsewhere_than_at_the_end_is_refused(
    store: JournalPort, after: int
) -> None:
    """The head is compared and set: neither a gap nor a second entry at one place."""
    lease = await started(store, "r", 2)

    with pytest.raises(HeadMoved):
        await store.append(
            "r", rows(after + 1, text="other"), after=after, lease=lease, summary=summary("parked")
        )

    assert rows(1, 2) == await store.read("r")
    head = await store.head("r")
    assert head is not None
    assert head.summary == summary()


async def test_rows_must_follow_their_position(store: JournalPort) -> None:
    """Rows that carry other numbers than their places are refused before anything is written."""
    lease = await store.acquire("r", "worker", TTL_SECONDS)

    with pytest.raises(StoreMisused, match="entry 3 cannot stand at position 2"):
        await store.append("r", [row(1), row(3)], after=0, lease=lease, summary=summary())

    assert [] == await store.read("r")


async def test_a_repeated_append_is_one_append(store: JournalPort) -> None:
    """An append whose answer was lost may be sent again: the same bytes are found and accepted."""
    lease = await started(store, "r", 2)
    first = await store.append("r", rows(3, 2), after=2, lease=lease, summary=summary())

    again = await store.append("r", rows(3, 2), after=2, lease=lease, summary=summary())

    assert first == again
    assert rows(1, 4) == await store.read("r")


async def test_a_repeated_append_is_found_behind_notes(store: JournalPort) -> None:
    """What was appended since does not hide that the rows are in."""
    lease = await started(store, "r", 2)
    await store.append("r", rows(3, text="note"), after=2, lease=None, summary=summary())

    head = await store.append("r", rows(1, 2), after=0, lease=lease, summary=summary("done"))

    assert 3 == head.seq
    assert head.summary == summary()


async def test_other_bytes_at_the_same_place_are_no_repetition(store: JournalPort) -> None:
    """A repetition is told by its bytes, every one of them, checksums included."""
    lease = await started(store, "r", 2)
    others = [[row(2, "other")], [Row(2, row(2).body, b"otherchk")], rows(2, 2)]

    for other in others:
        with pytest.raises(HeadMoved):
            await store.append("r", other, after=1, lease=lease, summary=summary())

    assert rows(1, 2) == await store.read("r")


async def test_a_repeated_append_still_releases(store: JournalPort) -> None:
    """The repetition does what the first attempt may not have come to do."""
    lease = await started(store, "r", 2)

    head = await store.append(
        "r", rows(1, 2), after=0, lease=lease, summary=summary(), release=True
    )

    assert "" == head.owner
    assert head == await store.head("r")


async def test_a_repeated_releasing_append_succeeds(store: JournalPort) -> None:
    """The lease went with the first attempt, which the rows prove to have been ours."""
    lease = await started(store, "r", 1)
    last = await store.append(
        "r", rows(2), after=1, lease=lease, summary=summary("done"), release=True
    )

    again = await store.append(
        "r", rows(2), after=1, lease=lease, summary=summary("done"), release=True
    )

    assert last == again


async def test_an_append_releases_in_the_same_unit(store: JournalPort) -> None:
    """With `release` the lease is gone when the rows are there; the epoch stays."""
    lease = await started(store, "r", 1)

    head = await store.append(
        "r", rows(2), after=1, lease=lease, summary=summary("suspended"), release=True
    )

    assert ("", 0.0, lease.epoch) == (head.owner, head.expires_in_seconds, head.epoch)
    assert not head.held
    with pytest.raises(LeaseLost, match="released"):
        await store.append("r", rows(3), after=2, lease=lease, summary=summary())


async def test_a_lease_is_released_without_rows(store: JournalPort) -> None:
    """Releasing alone is compared and set too, and may be repeated."""
    lease = await started(store, "r", 2)

    with pytest.raises(HeadMoved):
        await store.append("r", [], after=1, lease=lease, summary=summary(), release=True)
    head = await store.append(
        "r", [], after=2, lease=lease, summary=summary("parked"), release=True
    )
    again = await store.append("r", [], after=2, lease=lease, summary=summary(), release=True)

    assert ("", 2, row(2).check) == (head.owner, head.seq, head.check)
    assert head.summary == summary("parked")
    assert head == again


async def test_a_claim_is_released_without_a_start(store: JournalPort) -> None:
    """A head without entries has no summary, whatever the release brought."""
    lease = await store.acquire("r", "worker", TTL_SECONDS)

    head = await store.append("r", [], after=0, lease=lease, summary=summary(), release=True)

    assert (0, b"", "", None) == (head.seq, head.check, head.owner, head.summary)
    assert head == await store.head("r")


async def test_anybody_may_leave_a_note(store: JournalPort) -> None:
    """A note needs no lease, and takes none away."""
    lease = await started(store, "r", 1)

    noted = await store.append("r", rows(2), after=1, lease=None, summary=summary())
    with pytest.raises(HeadMoved):
        await store.append("r", rows(2, text="act"), after=1, lease=lease, summary=summary())
    acted = await store.append("r", rows(3), after=2, lease=lease, summary=summary())

    assert ("worker", lease.epoch) == (noted.owner, noted.epoch)
    assert 3 == acted.seq


async def test_a_note_may_come_first(store: JournalPort) -> None:
    """A run that does not exist begins with the note, without an epoch."""
    head = await store.append("r", rows(1), after=0, lease=None, summary=summary("saved"))

    assert (1, 0, "") == (head.seq, head.epoch, head.owner)
    assert head == await store.head("r")
    with pytest.raises(HeadMoved):
        await store.append("other", rows(3), after=2, lease=None, summary=summary())
    assert await store.head("other") is None


async def test_two_first_notes_do_not_overwrite_each_other(store: JournalPort) -> None:
    """Of two notes for one place one is in and the other is told to look again."""
    found = await asyncio.gather(
        *(
            store.append("r", rows(1, text=text), after=0, lease=None, summary=summary("saved"))
            for text in ("one", "two")
        ),
        return_exceptions=True,
    )

    assert [HeadMoved] == [type(error) for error in found if isinstance(error, Exception)]
    assert 1 == len(await store.read("r"))


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
async def test_an_ended_run_takes_no_notes(store: JournalPort, status: RunStatus) -> None:
    """A note on a terminal run is refused, wherever it would stand; a repeated one is not."""
    lease = await started(store, "r", 1)
    await store.append("r", rows(2), after=1, lease=None, summary=summary())
    await store.append("r", rows(3), after=2, lease=lease, summary=summary(status), release=True)

    for after in (1, 3):
        with pytest.raises(NoteRefused):
            await store.append(
                "r", rows(after + 1, text="late"), after=after, lease=None, summary=summary()
            )
    repeated = await store.append("r", rows(2), after=1, lease=None, summary=summary())

    assert 3 == repeated.seq
    assert rows(1, 3) == await store.read("r")


@pytest.mark.parametrize("status", ["running", "suspended", "parked", "saved"])
async def test_a_run_that_has_not_ended_takes_notes(store: JournalPort, status: RunStatus) -> None:
    """Waiting for somebody is what notes are for."""
    lease = await started(store, "r", 1)
    await store.append("r", rows(2), after=1, lease=lease, summary=summary(status), release=True)

    head = await store.append("r", rows(3), after=2, lease=None, summary=summary())

    assert 3 == head.seq


async def test_an_append_without_lease_must_bring_something(store: JournalPort) -> None:
    """Releasing needs the lease, and a note needs an entry."""
    for given, release in (([], False), (rows(1), True)):
        with pytest.raises(StoreMisused):
            await store.append("r", given, after=0, lease=None, summary=summary(), release=release)


async def test_a_lease_serves_its_own_run_and_scope(store: JournalPort) -> None:
    """A lease of another run or of another scope is a mistake of the caller, and said so."""
    lease = await started(store, "r")

    with pytest.raises(StoreMisused):
        await store.append("other", rows(1), after=0, lease=lease, summary=summary())
    with pytest.raises(StoreMisused):
        await store.scoped(Scope("b")).append("r", rows(1), after=0, lease=lease, summary=summary())


async def test_an_entry_has_a_limit(store: JournalPort) -> None:
    """16 MiB pass; one byte more does not, and nothing of the append is written."""
    lease = await store.acquire("r", "worker", TTL_SECONDS)
    largest = Row(1, bytes(MAX_ENTRY_BYTES), bytes(8))
    larger = Row(2, bytes(MAX_ENTRY_BYTES + 1), bytes(8))

    with pytest.raises(EntryTooLarge, match="16777217 bytes"):
        await store.append("r", [largest, larger], after=0, lease=lease, summary=summary())
    assert [] == await store.read("r")
    await store.append("r", [largest], after=0, lease=lease, summary=summary())

    assert [largest] == await store.read("r")


@pytest.mark.parametrize("run", ["", "x" * 513, "a\x00b", "a\nb", "a\ud800b"])
async def test_an_impossible_id_is_refused(store: JournalPort, run: str) -> None:
    """Empty, too long, control characters, lone surrogates: an error of its own, everywhere."""
    with pytest.raises(InvalidId):
        await store.acquire(run, "worker", TTL_SECONDS)
    with pytest.raises(InvalidId):
        await store.append(run, rows(1), after=0, lease=None, summary=summary())
    with pytest.raises(InvalidId):
        await store.head(run)

    assert ([], "") == await store.list_runs()


NASTY = [
    "../../etc/passwd",
    "a:agent:b",
    "{x}",
    "100%",
    "%2F",
    "#1",
    "*",
    "'; DROP TABLE x --",
    "é",
]


async def test_f117_any_other_id_is_just_a_name(store: JournalPort) -> None:
    """Paths, patterns, quotes and percent signs name runs like any other, each its own."""
    for run in [*NASTY, "e\u0301", "x" * 512]:
        await store.append(run, [row(1, run)], after=0, lease=None, summary=summary())

    for run in [*NASTY, "e\u0301", "x" * 512]:
        assert [row(1, run)] == await store.read(run)
    assert await store.delete_run("*")
    assert len(NASTY) + 1 == len((await store.list_runs())[0])


async def test_a_cancelled_append_is_carried_to_its_end(store: JournalPort) -> None:
    """The task ends as cancelled, after the append has been settled one way."""
    lease = await started(store, "r", 1)
    append = store.append("r", rows(2), after=1, lease=lease, summary=summary())
    task = asyncio.ensure_future(append)
    await asyncio.sleep(0)

    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]

    settled = await store.read("r")
    assert isinstance(outcome, asyncio.CancelledError) or 2 == len(settled)
    assert rows(1, 2) == settled
    assert 3 == (await store.append("r", rows(3), after=2, lease=lease, summary=summary())).seq


def test_one_object_serves_several_loops_and_threads(store: JournalPort) -> None:
    """Loops that come and go, one after the other and at once, share the object."""

    async def work(run: str) -> int:
        lease = await started(store, run)
        for seq in range(2, 12):
            await store.append(run, rows(seq), after=seq - 1, lease=lease, summary=summary())
        return len(await store.read(run))

    async def many(name: str) -> list[int]:
        return await asyncio.gather(*(work(f"{name}-{n}") for n in range(4)))

    counts: list[int] = asyncio.run(many("first"))
    threads = [
        threading.Thread(target=lambda name=name: counts.extend(asyncio.run(many(name))))
        for name in ("second", "third", "fourth")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [11] * 16 == counts


async def test_f056_f111_order_is_by_number_whatever_the_clock_says(
    store: JournalPort, clock: FakeClock
) -> None:
    """A clock that stands still or steps back makes no conflict and changes no order."""
    lease = await started(store, "r", 9)
    for seq, now in ((10, 1_700_000_000.0), (11, 5.0), (12, 5.0), (13, 0.0)):
        clock.set_now(now)
        await store.append("r", rows(seq), after=seq - 1, lease=lease, summary=summary())

    assert rows(1, 13) == await store.read("r")
    assert not store.renew({"r": lease})["r"].lost
