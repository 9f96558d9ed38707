"""Runs as lines of JSON: the same bytes come back, and whatever happened to the file is told."""

import random

import msgspec
import pytest

from agentkit.core.contracts.errors import AgentkitError, ExportDamaged, JournalTooNew
from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.upkeep.lines import (
    EntryLine,
    ExportedRun,
    ExportReader,
    ExportWriter,
    HeaderLine,
)
from tests.state.stores.moving import (
    exported,
    finished,
    imported,
    interrupted,
    outcomes,
    rows_of,
)


@pytest.fixture
async def lines() -> list[bytes]:
    """An export of three runs, one of them in another scope."""
    clock = FakeClock()
    store = InMemoryCheckpointStore(clock=clock)
    await finished(store, "a")
    await interrupted(store, "b")
    clock.advance(20)
    await finished(store, "c", scope=Scope("acme"))
    return await exported(store)


def _place(lines: list[bytes], mark: bytes) -> int:
    return next(n for n, line in enumerate(lines) if mark in line)


async def test_what_is_imported_is_what_was_exported(store: JournalPort) -> None:
    """Bytes, checksums and scopes; exported again the lines are the same but for the first."""
    source = InMemoryCheckpointStore()
    for scope in (Scope(), Scope("acme", "ann")):
        await finished(source, "r", scope=scope)
    lines = await exported(source)

    moved = await imported(lines, store)
    again = await imported(lines, store)

    assert ["copied", "copied"] == [one.outcome for one in moved]
    assert ["there", "there"] == [one.outcome for one in again]
    for scope in (Scope(), Scope("acme", "ann")):
        assert await rows_of(source, "r", scope) == await rows_of(store, "r", scope)
    contents = [
        [line.rpartition(b',"seal"')[0] for line in one[1:]]
        for one in (lines, await exported(store))
    ]
    assert contents[0] == contents[1]


async def test_a_tombstone_is_exported_as_what_is_left_of_it(store: JournalPort) -> None:
    """Its summary stands in its line, and is there again after the import."""
    source = InMemoryCheckpointStore()
    await finished(source, "r")
    head = await source.head("r")
    assert head is not None
    assert head.summary is not None
    await source.entomb("r", updated_at=head.summary.updated_at)

    moved = await imported(await exported(source), store)

    assert [("copied", True)] == [(one.outcome, one.tombstone) for one in moved]
    left = await store.head("r")
    assert left is not None
    assert (True, head.summary) == (left.tombstone, left.summary)


def test_bytes_that_are_no_text_are_kept_too() -> None:
    """As base64; text stays legible, whatever characters are in it."""
    for body in (b"\xff\xfe\x00", b"", '"\\ \x00 \u2028 😀'.encode(), b"\xed\xb2\x80"):
        row = Row(1, body, b"12345678")

        assert row == EntryLine.of(row).row()
    assert "ä" == EntryLine.of(Row(1, "ä".encode(), b"")).body


async def test_every_bit_that_flips_is_told(lines: list[bytes]) -> None:
    """One bit of each byte of the file: no error is silent, and what is imported is what was
    exported.
    """
    chance = random.Random(1)
    content = b"".join(lines)
    right, _ = _intact(lines)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << chance.randrange(8)

        read, errors = _intact(bytes(changed).splitlines(keepends=True))

        assert errors, f"byte {at}: {content[at : at + 20]!r}"
        assert read.items() <= right.items()


@pytest.mark.parametrize("kept", range(0, 100, 9))
async def test_a_file_that_is_cut_off_anywhere_is_told(kept: int, lines: list[bytes]) -> None:
    """By the line; the runs before it are read."""
    content = b"".join(lines)
    cut = content[: len(content) * kept // 100].splitlines(keepends=True)

    read, errors = _intact(cut)

    assert [("ExportDamaged", True)] == [
        (type(error).__name__, "cut off here" in str(error) or not kept) for error in errors
    ]
    assert read.items() <= _intact(lines)[0].items()
    if len(cut) > 1:
        assert f"line {len(cut)}" in str(errors[0])


async def test_a_file_that_lacks_its_last_lines_is_told(lines: list[bytes]) -> None:
    """Also where it ends between two runs, or with the last one: only the end is the end."""
    for kept in range(len(lines)):
        assert _intact(lines[:kept])[1], kept
    assert [] == _intact(lines)[1]


async def test_lines_that_are_moved_removed_or_doubled_are_told(lines: list[bytes]) -> None:
    """Each by its run and line; runs that are whole are read all the same."""
    at = _place(lines, b'"run":"b"') + 2
    cases = {
        "moved": [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]],
        "removed": [*lines[:at], *lines[at + 1 :]],
        "doubled": [*lines[:at], lines[at], *lines[at:]],
    }
    for name, changed in cases.items():
        read, errors = _intact(changed)

        assert {"a", "c"} == set(read), name
        damage = errors[0]
        assert isinstance(damage, ExportDamaged)
        assert ("b", at + 1 + (name == "doubled")) == (damage.run_id, damage.line), name


async def test_whole_runs_that_are_moved_removed_or_doubled_are_told(lines: list[bytes]) -> None:
    """They are numbered, and the end counts them."""
    a, b, c = (_place(lines, b'"run":"%b"' % run) for run in (b"a", b"b", b"c"))
    first, second, third = sorted((a, b, c))
    head, one, two = lines[:first], lines[first:second], lines[second:third]
    last, end = lines[third:-1], lines[-1:]
    cases = [
        [*head, *two, *one, *last, *end],
        [*head, *one, *last, *end],
        [*head, *one, *two, *end],
        [*head, *one, *one, *two, *last, *end],
        [*head, *end],
    ]
    for changed in cases:
        _, errors = _intact(changed)

        assert errors


async def test_a_run_of_another_file_does_not_fit(lines: list[bytes]) -> None:
    """Its seals follow another first line."""
    source = InMemoryCheckpointStore(clock=FakeClock(now=5_000.0))
    await finished(source, "x")
    foreign = await exported(source)

    read, errors = _intact([lines[0], *foreign[1:-1], *lines[1:]])

    assert {"a", "b", "c"} == set(read)
    assert errors
    assert 2 == getattr(errors[0], "line", 0)


async def test_something_behind_the_end_is_told(lines: list[bytes]) -> None:
    """Two files in one are not an export."""
    read, errors = _intact([*lines, *lines])

    assert {"a", "b", "c"} == set(read)
    assert ["something follows the end"] == [
        str(one).split(": ")[1].split(".")[0] for one in errors
    ]


@pytest.mark.parametrize(
    ("first", "error"),
    [
        (b"", ExportDamaged),
        (b"not an export\n", ExportDamaged),
        (b'{"kind":"agentkit_export","format":1,"release":""}\n', ExportDamaged),
        (b'{"kind":"agentkit_export","format":2,"anything":true}\n', JournalTooNew),
    ],
)
async def test_what_is_no_export_of_ours_is_refused(
    first: bytes, error: type[AgentkitError], lines: list[bytes]
) -> None:
    """Nothing is imported from it; a newer format says so."""
    store = InMemoryCheckpointStore()

    with pytest.raises(error):
        await imported([first, *lines[1:]], store)
    assert [] == await store.scopes()


async def test_hostile_names_reach_no_store(lines: list[bytes]) -> None:
    """Whoever can compute seals can write any line; its names are checked all the same."""
    good = next(one for one in ExportReader(lines) if isinstance(one, ExportedRun))
    for run, scope in (("", ""), ("r\n", ""), ("r" * 513, ""), ("r", "a/b/c"), ("r", "a%")):
        writer = ExportWriter(HeaderLine(1, "", 0, ""))
        line = msgspec.structs.replace(good.head, run=run, scope=scope, number=1)
        store = InMemoryCheckpointStore()

        moved = await imported([writer.header, *writer.run(line, good.rows), writer.end()], store)

        assert ["ExportDamaged"] == [type(one.error).__name__ for one in moved], (run, scope)
        assert [] == await store.scopes()


async def test_entries_are_checked_as_those_of_a_store(lines: list[bytes]) -> None:
    """Seals that were computed anew do not help an entry whose own checksum does not fit."""
    store = InMemoryCheckpointStore()
    forged = _forged(lines, lambda row: Row(row.seq, row.body.replace(b"look", b"l00k"), row.check))

    moved = await imported(forged, store)

    assert {"a": "JournalDamaged", "b": "copied", "c": "JournalDamaged"} == outcomes(moved)
    assert ["b"] == [run.run for run in (await store.list_runs())[0]]


def _intact(lines: list[bytes]) -> tuple[dict[str, list[Row]], list[AgentkitError]]:
    """What a reader gets, and what it is told."""
    read: dict[str, list[Row]] = {}
    errors: list[AgentkitError] = []
    try:
        for found in ExportReader(lines):
            if isinstance(found, ExportDamaged):
                errors.append(found)
            else:
                read[found.head.run] = list(found.rows)
    except (ExportDamaged, JournalTooNew) as error:
        errors.append(error)
    return read, errors


def _forged(lines: list[bytes], change) -> list[bytes]:  # type: ignore[no-untyped-def]
    """The file with each entry changed, sealed by somebody who can."""
    reader = ExportReader(lines)
    writer = ExportWriter(reader.header)
    forged = [writer.header]
    for found in reader:
        assert not isinstance(found, ExportDamaged)
        forged += writer.run(found.head, [change(row) for row in found.rows])
    return [*forged, writer.end()]
