"""Values by key: claimed once, settled once, forgotten when their time is over."""

from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.once import Claim, OncePort, keeps_values
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.checkpoints.adapters import _store_clock as store_clock

TTL_SECONDS = 60.0
OURS = Claim("ours")
OPEN = Claim("open")


def values_of(store: JournalPort) -> OncePort:
    """The store as one that keeps values."""
    port = keeps_values(store)
    assert port is not None
    return port


async def claim(store: JournalPort, token: str, key: str = "k") -> Claim:
    """Claim for a minute."""
    return await values_of(store).claim_value(key, token=token, ttl_seconds=TTL_SECONDS)


async def settle(store: JournalPort, token: str, value: str = '"v"', key: str = "k") -> bool:
    """Bring a value."""
    return await values_of(store).settle_value(key, token=token, value=value)


async def test_a_value_outlives_the_boot_that_it_was_brought_in(
    sqlite: SqliteCheckpointStore,
    clock: FakeClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a restart elapsed time begins anew; the wall clock alone says when it lapses."""
    await claim(sqlite, "a")
    await settle(sqlite, "a")
    monkeypatch.setattr(store_clock, "boot_id", lambda: "another boot")
    rebooted = FakeClock(clock.now() + TTL_SECONDS - 1, elapsed=5.0)
    later = SqliteCheckpointStore(tmp_path / "runs.db", clock=rebooted)
    before = await claim(later, "b")
    rebooted.set_now(clock.now() + TTL_SECONDS)

    assert Claim("settled", '"v"') == before
    assert OURS == await claim(later, "b")
    await later.aclose()


async def test_what_has_lapsed_is_forgotten(
    sqlite: SqliteCheckpointStore, clock: FakeClock, tmp_path: Path
) -> None:
    """Each claim takes some lapsed ones away, so the table does not grow for ever."""
    for number in range(20):
        await claim(sqlite, "a", key=f"k{number}")
    clock.advance(TTL_SECONDS)
    await claim(sqlite, "a", key="new")

    other = apsw.Connection(str(tmp_path / "runs.db"))
    kept = other.execute("SELECT key FROM agentkit_value").fetchall()
    other.close()
    assert [("new",)] == kept
