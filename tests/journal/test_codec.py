"""The chained checksum of rows."""

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import JournalDamaged
from agentkit.core.contracts.heads import Row
from agentkit.state.journal.codec import decode_rows, encode_entry


def _read(rows: list[Row]) -> list[int]:
    """The numbers of the entries that are read, and that of a damaged one below zero."""
    read = []
    try:
        for entry, _ in decode_rows(rows, after=0, before=b"", run_id="r"):
            read.append(entry.seq)
    except JournalDamaged as damage:
        read.append(-damage.seq)
    return read


def test_an_entry_that_was_changed_is_seen_at_its_place() -> None:
    """Also one that still reads well, wherever it stands, and before anything behind it is read."""
    rows: list[Row] = []
    for seq in (1, 2, 3):
        entry = e.Entry(seq, "", 1, "agent:a", 9, e.Failed(f"told {seq}"))
        rows.append(encode_entry(entry, before=rows[-1].check if rows else b"", run_id="r"))
    assert [1, 2, 3] == _read(rows)

    for at in range(3):
        body = rows[at].body.replace(b"told", b"sold")
        changed = [*rows[:at], Row(at + 1, body, rows[at].check), *rows[at + 1 :]]

        assert [*range(1, at + 1), -(at + 1)] == _read(changed)
