"""Appends that are sent again because their answer was lost."""

from __future__ import annotations

import asyncio

from agentkit.core.contracts.errors import HeadMoved, LeaseLost
from agentkit.core.contracts.heads import Row
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, plain, row, rows, started, summary

repeats = Subject("repeats", "journal")


@repeats.check("JournalPort.append")
async def a_repeated_append_is_one_append(it: Bench) -> None:
    """The same bytes at the same place are found and accepted, however often they are sent."""
    lease = await started(it.store, "r", 2)
    first = await it.store.append("r", rows(3, 2), after=2, lease=lease, summary=summary())

    for _ in range(3):
        again = await it.store.append("r", rows(3, 2), after=2, lease=lease, summary=summary())
        equal("the head of the repetition", expected=plain(first), actual=plain(again))

    equal("the rows", expected=rows(1, 4), actual=await it.store.read("r"))
    equal("the head afterwards", expected=plain(first), actual=plain(await it.store.head("r")))


@repeats.check("JournalPort.append")
async def the_same_append_twice_at_once_is_one_append(it: Bench) -> None:
    """A repetition may overtake the attempt that it repeats."""
    lease = await started(it.store, "r", 1)

    heads = await asyncio.gather(
        *(
            it.store.append("r", rows(2, 2), after=1, lease=lease, summary=summary())
            for _ in range(8)
        )
    )

    equal("where the heads are", expected={3}, actual={head.seq for head in heads})
    equal("the rows", expected=rows(1, 3), actual=await it.store.read("r"))


@repeats.check("JournalPort.append")
async def a_repeated_append_is_found_behind_later_ones(it: Bench) -> None:
    """What was appended since does not hide that the rows are in; nothing is changed again."""
    lease = await started(it.store, "r", 2)
    noted = summary(detail=b'{"noted":1}')
    await it.store.append("r", rows(3, text="note"), after=2, lease=None, summary=noted)

    for first, count in ((1, 2), (1, 1), (2, 1)):
        head = await it.store.append(
            "r", rows(first, count), after=first - 1, lease=lease, summary=summary("done")
        )

        equal("seq and summary", expected=(3, noted), actual=(head.seq, head.summary))
    equal("rows", expected=[*rows(1, 2), row(3, "note")], actual=await it.store.read("r"))


@repeats.check("JournalPort.append")
async def other_bytes_at_the_same_place_are_no_repetition(it: Bench) -> None:
    """A repetition is told by its bytes, every one of them, checksums included."""
    lease = await started(it.store, "r", 2)

    for what, other in (
        ("another body", [row(2, "other")]),
        ("another checksum", [Row(2, row(2).body, b"otherchk")]),
        ("one row more than is there", rows(2, 2)),
        ("an equal row and another one", [row(2), row(3, "other")]),
    ):
        attempt = it.store.append("r", other, after=1, lease=lease, summary=summary())
        await refused(HeadMoved, attempt, what=f"an append after 1 with {what}, of a run at 2")

    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))


@repeats.check("JournalPort.append")
async def an_append_that_overlaps_in_part_is_refused(it: Bench) -> None:
    """Rows of which only the first ones are there are no repetition: nothing of them is added."""
    lease = await started(it.store, "r", 4)

    attempt = it.store.append("r", rows(3, 4), after=2, lease=lease, summary=summary())
    await refused(HeadMoved, attempt, what="rows 3 to 6 where 3 and 4 are there already")

    equal("the rows", expected=rows(1, 4), actual=await it.store.read("r"))


@repeats.check("JournalPort.append")
async def a_repeated_append_still_releases(it: Bench) -> None:
    """The repetition does what the first attempt may not have come to do."""
    lease = await started(it.store, "r", 2)

    head = await it.store.append(
        "r", rows(1, 2), after=0, lease=lease, summary=summary(), release=True
    )

    equal("the owner", expected="", actual=head.owner)
    equal("the head afterwards", expected=head, actual=await it.store.head("r"))


@repeats.check("JournalPort.append")
async def a_repeated_releasing_append_succeeds(it: Bench) -> None:
    """The lease went with the first attempt, which the rows prove to have been ours."""
    lease = await started(it.store, "r", 1)
    end = summary("done")
    last = await it.store.append("r", rows(2), after=1, lease=lease, summary=end, release=True)

    again = await it.store.append("r", rows(2), after=1, lease=lease, summary=end, release=True)

    equal("the head of the repetition", expected=last, actual=again)
    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))


@repeats.check("JournalPort.append")
async def a_repetition_does_not_touch_the_successor(it: Bench) -> None:
    """Repeated after somebody took the run over it still succeeds, and releases nobody's lease."""
    old = await started(it.store, "r", 1)
    await it.store.append("r", rows(2), after=1, lease=old, summary=summary())
    new = await it.store.acquire("r", "heir", TTL_SECONDS, supersede=old.epoch)

    again = await it.store.append(
        "r", rows(2), after=1, lease=old, summary=summary("parked"), release=True
    )

    equal(
        "owner, epoch and summary",
        expected=("heir", new.epoch, summary()),
        actual=(again.owner, again.epoch, again.summary),
    )
    more = await it.store.append("r", rows(3), after=2, lease=new, summary=summary())
    equal("where the successor's append is", expected=3, actual=more.seq)


@repeats.check("JournalPort.append")
async def a_repetition_on_a_run_that_begins_anew_is_refused(it: Bench) -> None:
    """Deleted rows prove nothing: the old holder is told that its lease is lost."""
    old = await started(it.store, "r", 1)
    await it.store.append("r", [], after=1, lease=old, summary=summary(), release=True)
    await it.store.delete_run("r")

    attempt = it.store.append("r", rows(1), after=0, lease=old, summary=summary())
    await refused(LeaseLost, attempt, what="a repeated append to a run that was deleted")

    equal("the run", expected=None, actual=await it.store.head("r"))


@repeats.check("JournalPort.append")
async def a_repeated_note_is_one_note(it: Bench) -> None:
    """Notes are repeated like everything else, the first one of a run too."""
    for _ in range(2):
        await it.store.append("r", rows(1), after=0, lease=None, summary=summary("saved"))
        await it.store.append("r", rows(2), after=1, lease=None, summary=summary("saved"))

    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))


@repeats.check("JournalPort.append", "handles")
async def a_repetition_may_come_through_another_handle(it: Bench) -> None:
    """What proves an earlier attempt is in the store, not in the object that made it."""
    lease = await started(it.store, "r", 1)
    first = await it.store.append("r", rows(2), after=1, lease=lease, summary=summary())

    again = await it.another().append("r", rows(2), after=1, lease=lease, summary=summary())

    equal("the head of the repetition", expected=plain(first), actual=plain(again))
    equal("the rows", expected=rows(1, 2), actual=await it.store.read("r"))
