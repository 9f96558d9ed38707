"""Appending: one atomic unit, compared and set."""

from __future__ import annotations

import asyncio

from agentkit.core.contracts.errors import EntryTooLarge, HeadMoved, StoreMisused
from agentkit.core.contracts.heads import Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope, Usage
from agentkit.state.journal.codec import MAX_ENTRY_BYTES
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, plain, row, rows, started, summary

append = Subject("append", "journal")


@append.check("Row")
async def what_is_appended_is_read_back_byte_for_byte(it: Bench) -> None:
    """Bodies and checksums are opaque: zero bytes, invalid UTF-8 and emptiness included."""
    every = bytes(range(256))
    bodies = [b"\x00\xff\xfe", b"", b'{"a":1}', every * 40, every[::-1], b"'\"\\%s{0}\r\n"]
    given = [Row(seq, body, bytes([seq]) * 8) for seq, body in enumerate(bodies, 1)]
    given += [Row(7, b"x", bytes(8)), Row(8, b"y", b"\xff" * 8), Row(9, b"z", b"\n\r\0'\"\\%{")]
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)

    await it.store.append("r", given, after=0, lease=lease, summary=summary())

    equal("the rows read back", expected=given, actual=await it.store.read("r"))


@append.check("JournalPort.append")
async def an_append_moves_the_head(it: Bench) -> None:
    """The head says where the journal ends, with which checksum, and what the fold said."""
    made = summary("suspended", detail=b'{"open":1}')
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)

    head = await it.store.append("r", rows(1, 3), after=0, lease=lease, summary=made)

    equal(
        "seq, check, epoch and summary of the head that append returned",
        expected=(3, row(3).check, lease.epoch, made),
        actual=(head.seq, head.check, head.epoch, head.summary),
    )
    equal("the head afterwards", expected=plain(head), actual=plain(await it.store.head("r")))


@append.check("Summary")
async def a_summary_is_kept_whole(it: Bench) -> None:
    """Every field of the summary comes back, up to the largest integers."""
    made = Summary(
        "parked",
        agent="böt 'x'\"",
        iteration=2**40,
        usage=Usage(2**62, 2, 3, 4, 5),
        started_at=1_700_000_000_000,
        updated_at=2**62,
        recoveries=3,
        detail=b"\x00any bytes\xff",
    )
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)
    await it.store.append("r", rows(1), after=0, lease=lease, summary=made)

    head = await it.store.head("r")
    listed, _ = await it.store.list_runs()

    equal("the summary in the head", expected=made, actual=head and head.summary)
    equal("its count of recoveries", expected=3, actual=head and head.recoveries)
    equal("the summary in the list", expected=[made], actual=[one.summary for one in listed])


@append.check("JournalPort.read")
async def reading_goes_by_position(it: Bench) -> None:
    """`after` and `limit` cut the journal; seq 10 comes after 9; an unknown run has no rows."""
    store = it.store
    await started(store, "r", 12)

    equal("3 rows after 8", expected=rows(9, 3), actual=await store.read("r", after=8, limit=3))
    equal("rows after the last", expected=[], actual=await store.read("r", after=12))
    equal("rows beyond the end", expected=[], actual=await store.read("r", after=10**6))
    equal("no more than 0 rows", expected=[], actual=await store.read("r", limit=0))
    equal("rows of an unknown run", expected=[], actual=await store.read("unknown"))
    equal("head of an unknown run", expected=None, actual=await store.head("unknown"))


@append.check("JournalPort.read")
async def a_read_brings_at_most_ten_thousand_rows(it: Bench) -> None:
    """Without a limit 10,000 rows come; the next read goes on after them without a gap."""
    count = 10_050
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)
    for first in range(1, count, 2010):
        await it.store.append(
            "r", rows(first, 2010), after=first - 1, lease=lease, summary=summary()
        )

    found = await it.store.read("r")
    rest = await it.store.read("r", after=10_000)

    equal("how many came at first", expected=10_000, actual=len(found))
    holds("all rows come, in order", true=found + rest == rows(1, count))


@append.check("JournalPort.append")
async def an_append_elsewhere_than_at_the_end_is_refused(it: Bench) -> None:
    """The head is compared and set: neither a gap nor a second entry at one place."""
    lease = await started(it.store, "r", 2)

    for after in (0, 1, 3, 4):
        attempt = it.store.append(
            "r", rows(after + 1, text="other"), after=after, lease=lease, summary=summary("parked")
        )
        await refused(HeadMoved, attempt, what=f"an append after {after}, of a run at 2")

    head = await it.store.head("r")
    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))
    equal("the summary", expected=summary(), actual=head and head.summary)


@append.check("JournalPort.append")
async def rows_are_numbered_without_a_gap(it: Bench) -> None:
    """Rows that carry other numbers than their places are refused before anything is written."""
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)

    for given in ([row(1), row(3)], [row(2)], [row(0)], [row(1), row(1)], [row(2), row(1)]):
        attempt = it.store.append("r", given, after=0, lease=lease, summary=summary())
        numbers = [one.seq for one in given]
        await refused(StoreMisused, attempt, what=f"rows numbered {numbers} after 0")

    equal("the rows", expected=[], actual=await it.store.read("r"))


@append.check("JournalPort.append")
async def a_refused_append_leaves_nothing(it: Bench) -> None:
    """Whatever an append is refused for, neither its first rows nor its summary are there."""
    lease = await started(it.store, "r", 2)
    before = plain(await it.store.head("r"))
    large = Row(4, bytes(MAX_ENTRY_BYTES + 1), bytes(8))
    made = summary("done", agent="other", started_at=9, recoveries=5)

    for error, given, after in (
        (EntryTooLarge, [row(3), large], 2),
        (StoreMisused, [row(3), row(5)], 2),
        (HeadMoved, [row(2, "other"), row(3)], 1),
        (HeadMoved, [row(4), row(5)], 3),
    ):
        attempt = it.store.append("r", given, after=after, lease=lease, summary=made, release=True)
        what = f"rows {[one.seq for one in given]} after {after}, of a run at 2"
        await refused(error, attempt, what=what)

        equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))
        equal("the head", expected=before, actual=plain(await it.store.head("r")))
    equal(
        "the list of ended runs", expected=([], ""), actual=await it.store.list_runs(status="done")
    )


@append.check("JournalPort.append")
async def an_append_is_seen_whole_or_not_at_all(it: Bench) -> None:
    """Whoever reads meanwhile sees none of its rows or all of them, under a head that fits."""
    size, appends = 7, 12
    store = it.store
    lease = await store.acquire("r", "worker", TTL_SECONDS)
    over = asyncio.Event()

    async def look(reader: JournalPort) -> None:
        while not over.is_set():
            head = await reader.head("r")
            found = await reader.read("r")
            holds(f"{len(found)} rows are whole appends of {size}", true=len(found) % size == 0)
            holds(
                f"a read after a head at {head and head.seq} finds that many rows",
                true=head is not None and len(found) >= head.seq,
            )
            await asyncio.sleep(0)  # noqa: TID251 - gives way; no time passes

    async def write() -> None:
        try:
            for number in range(appends):
                after = number * size
                await store.append(
                    "r", rows(after + 1, size), after=after, lease=lease, summary=summary()
                )
        finally:
            over.set()

    await asyncio.gather(write(), look(store), look(store))

    equal("the rows", expected=rows(1, size * appends), actual=await store.read("r"))


@append.check("JournalPort.append")
async def an_append_releases_in_the_same_unit(it: Bench) -> None:
    """With `release` the lease is gone when the rows are there; the epoch stays."""
    lease = await started(it.store, "r", 1)

    head = await it.store.append(
        "r", rows(2), after=1, lease=lease, summary=summary("suspended"), release=True
    )

    equal(
        "owner, time left and epoch",
        expected=("", 0.0, lease.epoch),
        actual=(head.owner, head.expires_in_seconds, head.epoch),
    )
    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))
    equal("the head afterwards", expected=head, actual=await it.store.head("r"))


@append.check("JournalPort.append")
async def a_lease_is_released_without_rows(it: Bench) -> None:
    """Releasing alone is compared and set too, and may be repeated."""
    store = it.store
    lease = await started(store, "r", 2)

    early = store.append("r", [], after=1, lease=lease, summary=summary(), release=True)
    await refused(HeadMoved, early, what="a release after 1, of a run at 2")
    head = await store.append(
        "r", [], after=2, lease=lease, summary=summary("parked"), release=True
    )
    again = await store.append("r", [], after=2, lease=lease, summary=summary(), release=True)

    equal(
        "owner, seq, check and summary",
        expected=("", 2, row(2).check, summary("parked")),
        actual=(head.owner, head.seq, head.check, head.summary),
    )
    equal("the head of the repetition", expected=head, actual=again)


@append.check("Head")
async def a_claim_is_released_without_a_start(it: Bench) -> None:
    """A head without entries has no summary, whatever the release brought."""
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)

    head = await it.store.append("r", [], after=0, lease=lease, summary=summary(), release=True)

    equal(
        "seq, check, owner and summary",
        expected=(0, b"", "", None),
        actual=(head.seq, head.check, head.owner, head.summary),
    )
    equal("the head afterwards", expected=head, actual=await it.store.head("r"))


@append.check("JournalPort.append")
async def a_lease_serves_its_own_run_and_scope(it: Bench) -> None:
    """A lease of another run or of another scope is a mistake of the caller, and said so."""
    lease = await started(it.store, "r")

    other = it.store.append("other", rows(1), after=0, lease=lease, summary=summary())
    await refused(StoreMisused, other, what="an append to 'other' with a lease for 'r'")
    view = it.store.scoped(Scope("b"))
    foreign = view.append("r", rows(2), after=1, lease=lease, summary=summary())
    await refused(StoreMisused, foreign, what="an append in scope 'b' with a lease of Scope()")

    equal("the rows", expected=rows(1), actual=await it.store.read("r"))
    equal("the other run", expected=None, actual=await it.store.head("other"))


@append.check("JournalPort.append")
async def an_entry_has_a_limit(it: Bench) -> None:
    """16 MiB pass; one byte more does not, and nothing of the append is written."""
    lease = await it.store.acquire("r", "worker", TTL_SECONDS)
    largest = Row(1, b"\xa5" * MAX_ENTRY_BYTES, bytes(8))
    larger = Row(2, b"\xa5" * (MAX_ENTRY_BYTES + 1), bytes(8))

    attempt = it.store.append("r", [largest, larger], after=0, lease=lease, summary=summary())
    await refused(EntryTooLarge, attempt, what=f"an entry of {MAX_ENTRY_BYTES + 1} bytes")
    equal("the rows", expected=[], actual=await it.store.read("r"))
    await it.store.append("r", [largest], after=0, lease=lease, summary=summary())

    holds("the largest entry comes back", true=await it.store.read("r") == [largest])
