"""Values by key: claimed once, settled once, forgotten when their time is over."""

from __future__ import annotations

import asyncio
import math

from agentkit.core.contracts.errors import InvalidId, StoreMisused
from agentkit.core.contracts.once import Claim, OncePort, keeps_values
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, started, summary

values = Subject("values", "journal", "values")

_OURS = Claim("ours")
_OPEN = Claim("open")
_SETTLED = Claim("settled", '"v"')


def _port(store: JournalPort) -> OncePort:
    port = keeps_values(store)
    if port is None:
        raise AssertionError("asked of stores that keep values")
    return port


async def _claim(
    store: JournalPort, token: str, key: str = "k", *, ttl_seconds: float = TTL_SECONDS
) -> Claim:
    return await _port(store).claim_value(key, token=token, ttl_seconds=ttl_seconds)


async def _settle(store: JournalPort, token: str, value: str = '"v"', key: str = "k") -> bool:
    return await _port(store).settle_value(key, token=token, value=value)


@values.check("OncePort")
async def a_key_is_claimed_by_one_and_its_value_given_to_all(it: Bench) -> None:
    """Until it has its value, the key is open for everybody but its claimant."""
    store = it.store
    equal("the first claim", expected=_OURS, actual=await _claim(store, "a"))
    equal("another's meanwhile", expected=_OPEN, actual=await _claim(store, "b"))
    equal("whether the value is kept", expected=True, actual=await _settle(store, "a"))

    equal("another's then", expected=_SETTLED, actual=await _claim(store, "b"))
    equal("the claimant's then", expected=_SETTLED, actual=await _claim(store, "a"))


@values.check("OncePort.claim_value")
async def of_many_claimants_at_once_one_has_it(it: Bench) -> None:
    """However they interleave."""
    claims = await asyncio.gather(*(_claim(it.store, f"t{number}") for number in range(20)))

    states = sorted(one.state for one in claims)
    equal("what they are told", expected=["open"] * 19 + ["ours"], actual=states)


@values.check("OncePort.claim_value")
async def a_request_may_be_repeated(it: Bench) -> None:
    """Under the same token it is the same claim, and bringing a value twice brings it once."""
    for _ in range(2):
        equal("the claim", expected=_OURS, actual=await _claim(it.store, "a"))
    for _ in range(2):
        equal("whether the value is kept", expected=True, actual=await _settle(it.store, "a"))


@values.check("OncePort.settle_value")
async def only_the_claimant_brings_the_value(it: Bench) -> None:
    """Another one's value is refused, and so is one for a key that nobody claimed."""
    await _claim(it.store, "a")

    others = await _settle(it.store, "b", '"other"')
    nobodys = await _settle(it.store, "a", key="unclaimed")

    equal("whether another's value is kept", expected=False, actual=others)
    equal("whether a value for an unclaimed key is", expected=False, actual=nobodys)
    equal("the key", expected=_OPEN, actual=await _claim(it.store, "b"))
    equal("the unclaimed key", expected=_OURS, actual=await _claim(it.store, "b", "unclaimed"))


@values.check("OncePort", "clock")
async def at_the_exact_end_of_its_time_a_key_is_free(it: Bench) -> None:
    """A millisecond before, it is not; also where no value was brought."""
    for key, held in (("open", _OPEN), ("settled", _SETTLED)):
        await _claim(it.store, "a", key)
        if held is _SETTLED:
            await _settle(it.store, "a", key=key)
        await it.let_pass(TTL_SECONDS - 0.001)
        before = await _claim(it.store, "b", key)
        await it.let_pass(0.001)
        at_the_end = await _claim(it.store, "b", key)

        equal("the key a millisecond before its end", expected=held, actual=before)
        equal("the key at its end", expected=_OURS, actual=at_the_end)


@values.check("OncePort")
async def what_has_lapsed_is_as_if_it_had_never_been(it: Bench) -> None:
    """The key goes to whoever claims it next; a value that comes too late is nobody's."""
    store = it.store
    await _claim(store, "a", ttl_seconds=it.brief_seconds)
    await _claim(store, "a", "settled", ttl_seconds=it.brief_seconds)
    await _settle(store, "a", key="settled")
    await it.let_pass(it.brief_seconds * 1.05)

    equal("the settled key", expected=_OURS, actual=await _claim(store, "b", "settled"))
    equal("the open key", expected=_OURS, actual=await _claim(store, "b"))
    equal("whether a late value is kept", expected=False, actual=await _settle(store, "a"))
    equal("the key then", expected=_OPEN, actual=await _claim(store, "c"))


@values.check("OncePort.settle_value")
async def a_value_for_a_claim_that_has_lapsed_is_not_kept(it: Bench) -> None:
    """Also where nobody has claimed the key since."""
    await _claim(it.store, "a", ttl_seconds=it.brief_seconds)
    await it.let_pass(it.brief_seconds * 1.05)

    equal("whether a late value is kept", expected=False, actual=await _settle(it.store, "a"))
    equal("the key then", expected=_OURS, actual=await _claim(it.store, "b"))


@values.check("OncePort.claim_value")
async def a_time_that_is_over_at_once_is_refused(it: Bench) -> None:
    """Zero, less, and what is no number; one that is too long is for ever."""
    for seconds in (0, -1.0, math.nan):
        claim = _claim(it.store, "a", ttl_seconds=seconds)
        await refused(StoreMisused, claim, what=f"a claim for {seconds} seconds")
    for number, seconds in enumerate((1e30, math.inf)):
        claimed = await _claim(it.store, "a", f"k{number}", ttl_seconds=seconds)
        equal(f"a claim for {seconds} seconds", expected=_OURS, actual=claimed)


@values.check("OncePort", "clock", "elapsed")
async def a_wall_clock_that_moves_frees_nothing(it: Bench) -> None:
    """Set forward it does not make a claim lapse early, set back it only makes it last longer."""
    await _claim(it.store, "a")
    it.clock.set_now(it.clock.now() + 10 * TTL_SECONDS)
    forward = await _claim(it.store, "b")
    it.clock.set_now(it.clock.now() - 20 * TTL_SECONDS)
    await it.let_pass(TTL_SECONDS)

    equal("the key with the clock set forward", expected=_OPEN, actual=forward)
    equal("and set back", expected=_OPEN, actual=await _claim(it.store, "b"))


@values.check("OncePort")
async def keys_are_apart_by_scope(it: Bench) -> None:
    """Another tenant's key of the same name is another key."""
    other = it.store.scoped(Scope("other"))
    await _claim(it.store, "a")
    await _settle(it.store, "a")

    equal("the key in the other scope", expected=_OURS, actual=await _claim(other, "a"))
    kept = await _settle(other, "a", '"other"')
    equal("whether its value is kept", expected=True, actual=kept)
    equal("the key in this one", expected=_SETTLED, actual=await _claim(it.store, "c"))


@values.check("OncePort")
async def a_value_stays_when_its_run_is_deleted(it: Bench) -> None:
    """It belongs to no run, also where a run has the name of its key."""
    lease = await started(it.store, "k")
    await _claim(it.store, "a")
    await _settle(it.store, "a")
    await it.store.append("k", [], after=1, lease=lease, summary=summary(), release=True)
    await it.store.delete_run("k")

    equal("the key", expected=_SETTLED, actual=await _claim(it.store, "b"))


@values.check("OncePort")
async def values_are_no_runs(it: Bench) -> None:
    """Keys are in no list, and make no scope hold runs."""
    await _claim(it.store, "a")
    await _settle(it.store, "a")

    equal("the list", expected=([], ""), actual=await it.store.list_runs())
    equal("a run of the key's name", expected=None, actual=await it.store.head("k"))


@values.check("OncePort.claim_value")
async def a_key_is_checked_like_an_id(it: Bench) -> None:
    """Empty, too long and with control characters it is refused."""
    for key in ("", "k" * 513, "line\nbreak", "nul\x00", "half\ud800"):
        await refused(InvalidId, _claim(it.store, "a", key), what=f"a claim of {key[:20]!r}")
        settle = _settle(it.store, "a", key=key)
        await refused(InvalidId, settle, what=f"a value for {key[:20]!r}")


@values.check("OncePort", "handles")
async def values_are_the_places_not_the_handles(it: Bench) -> None:
    """Another handle sees the claim and the value."""
    await _claim(it.store, "a")
    other = it.another()

    equal("the key, by another handle", expected=_OPEN, actual=await _claim(other, "b"))
    equal("whether the value is kept", expected=True, actual=await _settle(other, "a"))
    equal("the key, by the first", expected=_SETTLED, actual=await _claim(it.store, "b"))
