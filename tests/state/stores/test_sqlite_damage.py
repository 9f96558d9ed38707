"""SQLite: what is damaged beside the entries is an error with a name, never another answer."""

import asyncio
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.errors import JournalDamaged, StoreDamaged
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.checkpoints.adapters._sqlite_journal import Appending, SqliteJournal
from agentkit.state.checkpoints.adapters._sqlite_values import SqliteValues
from agentkit.state.checkpoints.adapters._sqlite_writer import write_group
from agentkit.state.checkpoints.adapters._store_clock import StoreClock
from agentkit.tools.threads import DaemonThreads
from tests.state.stores.helpers import TTL_SECONDS, row, rows, started, summary

WRITTEN = [
    "seq = 2",
    "tip = x'00'",
    "claims = 1",
    "status = 'done'",
    "agent = 'agenu'",
    "agent = CAST(x'ff' AS TEXT)",
    "iteration = 1.5",
    "output_tokens = 1",
    "updated_at = 7",
    "detail = x'7b7c'",
    "detail = CAST(detail AS TEXT)",
]
LEASE = ["epoch = epoch + 1", "owner = 'worked'", "boot = ''", "expires_ms = expires_ms + 1"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store under test."""
    return tmp_path / "runs.db"


def edit(path: Path, sql: str) -> None:
    """Change a row by hand, so that its seal does not know."""
    db = apsw.Connection(str(path))
    db.execute(sql)
    db.close()


def flip(path: Path, place: str, text: bytes) -> None:
    """Flip a bit of the last byte of `text` where it stands in the table or index `place`."""
    db = apsw.Connection(str(path))
    page = db.execute("PRAGMA page_size").get
    found = db.execute("SELECT pageno FROM dbstat WHERE name = ?", (place,)).fetchall()
    db.close()
    content = bytearray(path.read_bytes())
    starts = [(int(str(number)) - 1) * page for (number,) in found]
    at = max(content.find(text, start, start + page) for start in starts)
    assert at >= 0
    content[at + len(text) - 1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("change", WRITTEN + LEASE)
async def test_a_changed_head_is_an_error_wherever_it_is_read(
    sqlite: SqliteCheckpointStore, path: Path, change: str
) -> None:
    """Looking, listing, claiming and leaving a note name the run; nothing is written."""
    await started(sqlite, "r")
    edit(path, f"UPDATE agentkit_run SET {change}")

    with pytest.raises(JournalDamaged, match="the head of run 'r' is damaged"):
        await sqlite.head("r")
    with pytest.raises(JournalDamaged, match="is damaged"):
        await sqlite.list_runs()
    with pytest.raises(JournalDamaged, match="'r'"):
        await sqlite.acquire("r", "heir", TTL_SECONDS)
    with pytest.raises(JournalDamaged, match="'r'"):
        await sqlite.append("r", rows(2), after=1, lease=None, summary=summary())
    assert rows(1) == await sqlite.read("r")


@pytest.mark.parametrize(
    "change", ["boot = 'other'", "boot = CAST(x'ff' AS TEXT)", "expires_ms = 0"]
)
async def test_an_append_looks_at_the_lease_that_it_finds(
    sqlite: SqliteCheckpointStore, path: Path, change: str
) -> None:
    """A lease whose expiry was changed stops its holder's next append; nothing is written."""
    lease = await started(sqlite, "r")
    edit(path, f"UPDATE agentkit_run SET {change}")

    with pytest.raises(JournalDamaged, match="'r'"):
        await sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())

    assert rows(1) == await sqlite.read("r")


async def test_an_append_writes_a_changed_summary_anew(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """The holder's own append needs nothing of the summary before it, so damage there ends."""
    lease = await started(sqlite, "r")
    edit(path, "UPDATE agentkit_run SET status = 'done', detail = x''")

    head = await sqlite.append("r", rows(2), after=1, lease=lease, summary=summary())

    assert head == await sqlite.head("r")
    assert summary() == head.summary


async def test_a_damaged_run_costs_no_other_its_lease(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """Of leases that are renewed together the damaged one is lost, and it alone."""
    leases = {run: await started(sqlite, run) for run in ("bad", "good")}
    edit(path, "UPDATE agentkit_run SET epoch = epoch + 2 WHERE run = 'bad'")

    renewals = sqlite.renew(leases)

    assert {"bad": True, "good": False} == {run: one.lost for run, one in renewals.items()}
    assert not sqlite.renew({"good": leases["good"]})["good"].lost


async def test_a_run_that_the_index_hides_is_not_started_again(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """Its name does not find it, its number does: an error, and no second run of that name."""
    lease = await started(sqlite, "needle-run")
    await sqlite.aclose()
    flip(path, "agentkit_run_name", b"needle-run")

    with pytest.raises(JournalDamaged, match="name does not find it"):
        await sqlite.head("needle-run")
    with pytest.raises(JournalDamaged, match="name does not find it"):
        await sqlite.acquire("needle-run", "heir", TTL_SECONDS)
    with pytest.raises(JournalDamaged, match="name does not find it"):
        await sqlite.read("needle-run")
    with pytest.raises(JournalDamaged, match="name does not find it"):
        await sqlite.append("needle-run", rows(1), after=0, lease=None, summary=summary())
    with pytest.raises(JournalDamaged, match="name does not find it"):
        await sqlite.append("needle-run", rows(2), after=1, lease=lease, summary=summary())
    with pytest.raises(JournalDamaged, match="name does not find it"):
        await sqlite.delete_run("needle-run")


async def test_the_index_cannot_lead_to_the_entries_of_another_run(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """The index gives run b the number of run c: reading is an error, not the other's journal."""
    for run in "abc":
        await sqlite.append(run, [row(1, run)], after=0, lease=None, summary=summary())
    await sqlite.aclose()
    flip(path, "agentkit_run_name", b"b\x02")

    with pytest.raises(JournalDamaged, match="'b'"):
        await sqlite.read("b")
    assert [row(1, "c")] == await sqlite.read("c")


@pytest.mark.parametrize(
    "change",
    ["status = 'done'", "agent = 'other'", "started_at = 5", "seq = 0", "run = 's'", "filed = ''"],
)
async def test_a_list_leaves_no_run_out_and_moves_none(
    sqlite: SqliteCheckpointStore, path: Path, change: str
) -> None:
    """What would drop a run from a filtered page, or to another page, is an error instead."""
    for number, run in enumerate(("r", "t", "u")):
        note = summary(started_at=1_000 + number)
        await sqlite.append(run, rows(1), after=0, lease=None, summary=note)
    edit(path, f"UPDATE agentkit_run SET {change} WHERE run = 'r'")

    with pytest.raises(JournalDamaged, match="what lists go by"):
        await sqlite.list_runs(status="running", agent="agent", limit=1)


async def test_a_list_counts_the_runs_of_its_scope_twice(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """A run that is in another scope in the index alone makes the list of its scope an error."""
    needle = sqlite.scoped(Scope(tenant="needle"))
    await needle.append("r", rows(1), after=0, lease=None, summary=summary())
    await started(sqlite, "r")
    await sqlite.aclose()
    flip(path, "agentkit_run_name", Scope(tenant="needle").key.encode())

    with pytest.raises(StoreDamaged, match="the table has 1 of this scope, its index 0"):
        await needle.list_runs()
    assert 1 == len((await sqlite.list_runs())[0])


async def test_a_run_whose_summary_is_damaged_can_be_deleted(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """Deleting goes by the lease: intact and free is enough, damaged is refused."""
    for run in ("bad", "worse"):
        await sqlite.append(run, rows(1), after=0, lease=None, summary=summary())
    edit(path, "UPDATE agentkit_run SET detail = x'' WHERE run = 'bad'")
    edit(path, "UPDATE agentkit_run SET epoch = 9 WHERE run = 'worse'")

    assert await sqlite.delete_run("bad")
    with pytest.raises(JournalDamaged, match="'worse' is damaged: its lease"):
        await sqlite.delete_run("worse")
    assert await sqlite.head("bad") is None


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM agentkit_store",
        "DELETE FROM agentkit_store WHERE copy = 1",
        "UPDATE agentkit_store SET forgotten_epoch = 64 WHERE copy = 2",
    ],
)
async def test_a_lost_epoch_of_deleted_runs_is_damage(
    sqlite: SqliteCheckpointStore, path: Path, change: str
) -> None:
    """Without it a new run might count from below a deleted one: it is not started."""
    lease = await started(sqlite, "there")
    edit(path, change)

    with pytest.raises(StoreDamaged, match="highest epoch"):
        await sqlite.acquire("new", "worker", TTL_SECONDS)

    assert await sqlite.head("new") is None
    head = await sqlite.append("there", rows(2), after=1, lease=lease, summary=summary())
    assert 2 == head.seq


async def test_a_transaction_on_a_damaged_head_leaves_the_file_free(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """The tool is not run, and the connection that looked holds no lock afterwards."""
    lease = await started(sqlite, "r")
    other = await started(sqlite, "other")
    edit(path, "UPDATE agentkit_run SET detail = x'' WHERE run = 'r'")
    ran: list[str] = []

    for _ in range(2):
        with pytest.raises(JournalDamaged, match="'r'"):
            await sqlite.transact(
                "r",
                lambda _: ran.append("ran"),
                lambda _: None,
                after=1,
                lease=lease,
                threads=DaemonThreads(),
                timeout_seconds=30,
            )

    assert [] == ran
    head = await sqlite.append("other", rows(2), after=1, lease=other, summary=summary())
    assert 2 == head.seq


@pytest.mark.parametrize(
    "change",
    ["value = '2'", "token = 'x'", "expires_wall_ms = 0, boot = ''", "value = CAST(x'ff' AS TEXT)"],
)
async def test_a_changed_value_is_an_error(
    sqlite: SqliteCheckpointStore, path: Path, change: str
) -> None:
    """Neither another value nor a second claim comes of it, also after others have purged."""
    await sqlite.claim_value("key", token="t", ttl_seconds=60)
    await sqlite.settle_value("key", token="t", value="1")
    edit(path, f"UPDATE agentkit_value SET {change}")

    assert "ours" == (await sqlite.claim_value("other", token="t", ttl_seconds=60)).state
    with pytest.raises(StoreDamaged, match="'key' is damaged"):
        await sqlite.claim_value("key", token="u", ttl_seconds=60)


async def test_a_damaged_value_fails_no_neighbour(
    sqlite: SqliteCheckpointStore, path: Path, clock: FakeClock
) -> None:
    """What shares a commit with a claim on it is durable all the same."""
    lease = await started(sqlite, "r")
    await sqlite.claim_value("key", token="t", ttl_seconds=60)
    edit(path, "UPDATE agentkit_value SET token = 'u'")
    values, journal = SqliteValues(StoreClock(clock)), SqliteJournal(StoreClock(clock))
    new = Appending(rows(2), 1, lease, summary(), release=False)
    db = apsw.Connection(str(path))

    outcomes = write_group(
        db,
        [
            lambda db: journal.append(db, "", "r", new),
            lambda db: values.claim(db, "", "key", token="v", ttl_seconds=60),
        ],
        str(path),
    )
    db.close()

    assert [type(None), StoreDamaged] == [type(one.error) for one in outcomes]
    assert rows(1, 2) == await sqlite.read("r")


async def test_a_value_that_the_index_hides_is_not_claimed_again(
    sqlite: SqliteCheckpointStore, path: Path
) -> None:
    """Its key does not find it, its number does."""
    await sqlite.claim_value("needle-key", token="t", ttl_seconds=60)
    await sqlite.aclose()
    flip(path, "agentkit_value_name", b"needle-key")

    with pytest.raises(StoreDamaged, match="its name does not find it"):
        await sqlite.claim_value("needle-key", token="u", ttl_seconds=60)


async def test_sqlites_own_check_is_bounded(
    sqlite: SqliteCheckpointStore, path: Path, clock: FakeClock
) -> None:
    """It says what it finds, nothing where nothing is wrong, and when its time was not enough."""
    for number in range(200):
        await started(sqlite, f"run-{number}")
    sound = await sqlite.integrity(limit_seconds=60)
    stopped = await sqlite.integrity(limit_seconds=0)
    await sqlite.aclose()
    flip(path, "agentkit_run_name", b"run-7")
    found = await sqlite.integrity(limit_seconds=60)

    assert [] == sound
    assert stopped is None
    assert found
    assert "agentkit_run_name" in " ".join(found)


async def test_a_run_that_begins_while_it_is_looked_for_is_not_damaged(path: Path) -> None:
    """A read sees one moment: another process creates the run between the look-up by name and the
    one that finds hidden runs, and to this read it is not there yet.
    """
    store, other = SqliteCheckpointStore(path), SqliteCheckpointStore(path)
    await other.head("nobody")  # the file is there
    looked: list[str] = []

    def watch(db: apsw.Connection) -> None:
        def about_to(_: object, sql: str, __: object) -> bool:
            if "INDEXED BY agentkit_run_identity" in sql and not looked:
                looked.append(sql)
                asyncio.run(other.acquire("r", "worker", TTL_SECONDS))
            return True

        db.exec_trace = about_to

    apsw.connection_hooks.append(watch)
    try:
        found = await store.head("r")
    finally:
        apsw.connection_hooks.remove(watch)
    again = await store.head("r")

    assert (1, None) == (len(looked), found)
    assert again is not None
    await store.aclose()
    await other.aclose()
