"""One bit of a database file is flipped: what is read was written, or an error says so."""

from __future__ import annotations

import pytest

from agentkit.state.checkpoints.adapters import _sqlite_journal
from agentkit.state.checkpoints.adapters._sqlite_heads import Found, LeaseColumns, Written
from agentkit.testing.disk import flips as rig
from agentkit.testing.disk.__main__ import main
from agentkit.testing.disk.flips import Database, bit_flips, database, random_bits


@pytest.fixture(scope="module")
def made() -> Database:
    """Finished, held and deleted runs and a kept value, checkpointed."""
    return database()


def test_no_flip_is_silent(made: Database) -> None:
    """Entries, heads, lists and claims are as written, or the error names the run or the file."""
    flips = bit_flips(made, random_bits(made, range(800), seed=1))

    assert [] == flips.silent()
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
    assert "the head of run 'run-" in flips.flips[0].what
    assert "is damaged: 'utf-8' codec" in flips.flips[0].what


def test_a_reader_that_trusts_the_bytes_is_seen(
    made: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rig finds changed entries where nobody looks at the checksums."""
    monkeypatch.setattr(rig, "decode_rows", lambda rows, **_: iter(()))
    body = made.said.rows[1][0].body
    start = made.content.rindex(body) * 8

    flips = bit_flips(made, range(start, start + 80, 8))

    assert {"entries"} == {flip.verdict for flip in flips.flips}
    assert 10 == len(flips.silent())


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("agentkit_run", "is damaged: its summary (position, status"),
        ("agentkit_run_name", "it is there, but its name does not find it"),
        ("agentkit_store", "the highest epoch of deleted runs"),
        ("agentkit_value", "what is kept under the key 'key' is damaged"),
        ("agentkit_value_name", "it is there, but its name does not find it"),
    ],
)
def test_each_table_beside_the_entries_has_its_own_guard(
    made: Database, place: str, told: str
) -> None:
    """Flips in what stands last on its page: none silent, some seen by what guards that table."""
    page = int.from_bytes(made.content[16:18], "big")
    end = min(number for number, owner in made.places.items() if owner == place) * page
    used = [byte for byte in range(end - page, end) if made.content[byte]]
    flips = bit_flips(made, [byte * 8 + 3 for byte in used[-100:]])

    assert [] == flips.silent()
    assert any(told in flip.what for flip in flips.flips if flip.verdict == "told")


def test_a_store_that_does_not_look_at_its_seals_is_seen(
    made: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rig finds changed heads where nobody compares a head with its seal."""
    monkeypatch.setattr(
        _sqlite_journal,
        "found_in",
        lambda _scope, _run, row: Found(row[0], LeaseColumns(*row[1:5]), Written(*row[7:])),
    )
    summary = made.said.heads[0].summary
    assert summary is not None
    at = made.content.rindex(summary.detail) * 8

    flips = bit_flips(made, range(at + 16, at + 56, 8))

    assert {"head"} == {flip.verdict for flip in flips.flips}
    assert 5 == len(flips.silent())


def test_the_command_fails_for_a_silent_flip(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0 where all flips are told, and 1 with the bit to try again where one is not."""
    sound = main(["bit-flips", "--cases", "60", "--seed", "2"])
    told = capsys.readouterr().out
    monkeypatch.setattr(rig, "decode_rows", lambda rows, **_: iter(()))
    blind = main(["bit-flips", "--cases", "60", "--seed", "2"])
    said = capsys.readouterr().out

    assert (0, 1) == (sound, blind)
    assert "60 of " in told
    assert "told" in told
    assert "again: python -m agentkit.testing.disk bit-flips --seed 2 --bit " in said
