"""Values by key: claimed once, settled once, forgotten when their time is over."""

import asyncio
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.errors import InvalidId
from agentkit.core.contracts.once import Claim, OncePort, keeps_values
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing.clock import FakeClock
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore, StoreWrapper
from agentkit.state.checkpoints.adapters import _store_clock as store_clock
from tests.state.stores.helpers import started, summary

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


async def test_a_key_is_claimed_by_one_and_its_value_given_to_all(store: JournalPort) -> None:
    """Until it has its value, the key is open for everybody but its claimant."""
    first = await claim(store, "a")
    while_open = await claim(store, "b")
    settled = await settle(store, "a")

    assert (OURS, OPEN, True) == (first, while_open, settled)
    assert Claim("settled", '"v"') == await claim(store, "b")
    assert Claim("settled", '"v"') == await claim(store, "a")


async def test_of_many_claimants_at_once_one_has_it(store: JournalPort) -> None:
    """However they interleave."""
    claims = await asyncio.gather(*(claim(store, f"t{number}") for number in range(20)))

    assert [OURS] == [one for one in claims if one.state == "ours"]


async def test_a_request_may_be_repeated(store: JournalPort) -> None:
    """Under the same token it is the same claim, and bringing a value twice brings it once."""
    assert [OURS, OURS] == [await claim(store, "a"), await claim(store, "a")]
    assert [True, True] == [await settle(store, "a"), await settle(store, "a")]


async def test_only_the_claimant_brings_the_value(store: JournalPort) -> None:
    """Another one's value is refused, and so is one for a key that nobody claimed."""
    await claim(store, "a")

    assert not await settle(store, "b", '"other"')
    assert not await settle(store, "a", key="unclaimed")
    assert OPEN == await claim(store, "b")


@pytest.mark.parametrize("brought", [True, False])
async def test_at_the_exact_end_of_its_time_a_key_is_free(
    store: JournalPort, clock: FakeClock, *, brought: bool
) -> None:
    """A millisecond before, it is not; also where no value was brought."""
    await claim(store, "a")
    if brought:
        await settle(store, "a")
    clock.advance(TTL_SECONDS - 0.001)
    before = await claim(store, "b")
    clock.advance(0.001)

    assert (Claim("settled", '"v"') if brought else OPEN) == before
    assert OURS == await claim(store, "b")


async def test_a_value_that_comes_too_late_is_nobodys(store: JournalPort, clock: FakeClock) -> None:
    """The key has another claimant, whose value it waits for."""
    await claim(store, "a")
    clock.advance(TTL_SECONDS)
    await claim(store, "b")

    assert not await settle(store, "a")
    assert OPEN == await claim(store, "c")


@pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
async def test_a_lapsed_claim_is_not_settled(store: JournalPort, clock: FakeClock) -> None:
    """Whether or not somebody has come after: it is as if it had never been made."""
    await claim(store, "a")
    clock.advance(TTL_SECONDS)

    assert not await settle(store, "a")
    assert OURS == await claim(store, "b")


async def test_a_wall_clock_that_moves_frees_nothing(store: JournalPort, clock: FakeClock) -> None:
    """Set forward it does not make a claim lapse early, set back it only makes it last longer. Of
    stores on this machine: a server's only clock is its wall clock.
    """
    await claim(store, "a")
    clock.set_now(clock.now() + 10 * TTL_SECONDS)
    forward = await claim(store, "b")
    clock.set_now(clock.now() - 20 * TTL_SECONDS)
    clock.advance(TTL_SECONDS)

    assert OPEN == forward
    assert OPEN == await claim(store, "b")


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


async def test_keys_are_apart_by_scope(store: JournalPort) -> None:
    """Another tenant's key of the same name is another key."""
    other = store.scoped(Scope(tenant="other"))
    await claim(store, "a")
    await settle(store, "a")

    assert OURS == await claim(other, "b")
    assert await settle(other, "b", '"other"')
    assert Claim("settled", '"v"') == await claim(store, "c")


async def test_a_value_stays_when_its_run_is_deleted(store: JournalPort) -> None:
    """It belongs to no run."""
    lease = await started(store, "r")
    await claim(store, "a")
    await settle(store, "a")
    await store.append("r", [], after=1, lease=lease, summary=summary(), release=True)
    await store.delete_run("r")

    assert Claim("settled", '"v"') == await claim(store, "b")


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


@pytest.mark.parametrize("key", ["", "k" * 513, "line\nbreak"])
async def test_a_key_is_checked_like_an_id(store: JournalPort, key: str) -> None:
    """Empty, too long and with control characters it is refused."""
    with pytest.raises(InvalidId):
        await claim(store, "a", key=key)


async def test_a_wrapper_keeps_what_its_store_keeps(store: JournalPort) -> None:
    """It hands the two methods on, in its scope too."""
    wrapper = StoreWrapper(store).scoped(Scope(tenant="t"))
    await claim(wrapper, "a")

    assert await settle(wrapper, "a")
    assert Claim("settled", '"v"') == await claim(store.scoped(Scope(tenant="t")), "b")
