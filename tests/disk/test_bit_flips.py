"""One bit of a database file is flipped: the entries are what was written, or an error says so."""

from __future__ import annotations

import pytest

from agentkit.testing.disk import flips as rig
from agentkit.testing.disk.__main__ import main
from agentkit.testing.disk.flips import Database, bit_flips, database, random_bits


@pytest.fixture(scope="module")
def made() -> Database:
    """Two finished runs, checkpointed."""
    return database()


def test_no_flip_changes_entries_silently(made: Database) -> None:
    """What is read of a journal was written, or the error names the entry or the file."""
    flips = bit_flips(made, random_bits(made, range(800), seed=1))

    assert [] == flips.broken()
    assert flips.counts()["told"] > 100
    assert flips.counts()["harmless"] > 100
    told = [flip.what for flip in flips.flips if flip.verdict == "told"]
    assert any("JournalDamaged: run 'run-0': entry " in what for what in told)
    assert any("StoreDamaged" in what for what in told)


def test_every_bit_of_an_entry_is_covered(made: Database) -> None:
    """Each byte of the first entry of a run, flipped, is an error with that entry's number."""
    body = made.said.rows[1][0].body
    start = made.content.rindex(body) * 8
    flips = bit_flips(made, range(start, start + len(body) * 8, 8))

    assert {"told"} == {flip.verdict for flip in flips.flips}
    assert all("entry 1 of its journal is damaged" in flip.what for flip in flips.flips)


def test_a_head_that_is_no_text_is_an_error_that_names_the_run(made: Database) -> None:
    """The name of a run's agent, made invalid UTF-8, does not come out as an error of Python's."""
    owner = made.content.rindex(b"doneworker") * 8
    flips = bit_flips(made, [owner + 4 * 8 + 7])

    assert ["told"] == [flip.verdict for flip in flips.flips]
    assert "the head of run 'run-0' is damaged" in flips.flips[0].what


def test_a_reader_that_trusts_the_bytes_is_seen(
    made: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rig finds changed entries where nobody looks at the checksums."""
    monkeypatch.setattr(rig, "decode_rows", lambda rows, **_: iter(()))
    body = made.said.rows[1][0].body
    start = made.content.rindex(body) * 8

    flips = bit_flips(made, range(start, start + 80, 8))

    assert {"entries"} == {flip.verdict for flip in flips.flips}
    assert 10 == len(flips.broken())


def test_the_command_says_what_is_not_protected(capsys: pytest.CaptureFixture[str]) -> None:
    """Heads and their indexes carry no checksum; the command counts what that costs."""
    code = main(["bit-flips", "--cases", "300", "--seed", "2"])

    printed = capsys.readouterr().out
    assert 0 == code
    assert "300 of " in printed
    assert "told" in printed
