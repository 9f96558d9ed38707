"""Hostile text in every string that a store takes."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import cast

import msgspec

from agentkit.core.contracts.errors import AgentkitError, InvalidId
from agentkit.core.contracts.heads import RunStatus
from agentkit.core.contracts.once import keeps_values
from agentkit.core.contracts.ports import Checkpoint, CheckpointStatus
from agentkit.core.contracts.slots import agent_slot
from agentkit.core.contracts.types import Scope
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import Broken, equal, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, row, rows, summary

ids = Subject("ids", "journal")

HOSTILE = (
    "'; DROP TABLE agentkit_run; --",
    '"quoted" and \\ back\\\\slashed',
    "100% %s %(x)s %2F _%",
    "{x} {0} {{tag}} ${x}",
    "#1 a:agent:b :journal",
    "?1 :name $1 @x",
    "*[a-z]?",
    "../../etc/passwd",
    '"); redis.call("FLUSHALL") --',
    "]] return redis.error_reply('x') --[[",
    " leading and trailing ",
    "null",
    "0",
    "-1",
    "e\u0301 is not \u00e9",
    "\u00e9 is not e\u0301",
    "😀👨‍👩‍👧 \U0010ffff",
    "\u202ertl\u202c \u0627\u0644\u0639",
    "\ufeffbom \u200b zero",
    "x" * 512,
    "😀" * 512,
)
"""Texts that name things like any other, each its own."""

REFUSED = ("", "x" * 513, "a\x00b", "a\nb", "a\r", "\t", "a\x7f", "a\x85b", "a\u2028b", "a\ud800b")
"""Texts that may not be ids."""


@ids.check("JournalPort")
async def an_impossible_id_is_refused_by_every_method(it: Bench) -> None:
    """Empty, too long, control characters, lone surrogates: `InvalidId`, and nothing is written."""
    store = it.store
    for run in REFUSED:
        short = repr(run[:20])
        attempts: dict[str, Awaitable[object]] = {
            "acquire": store.acquire(run, "worker", TTL_SECONDS),
            "acquire, as owner": store.acquire("owned", run, TTL_SECONDS),
            "append": store.append(run, rows(1), after=0, lease=None, summary=summary()),
            "read": store.read(run),
            "head": store.head(run),
            "delete_run": store.delete_run(run),
            "entomb": store.entomb(run, updated_at=0),
        }
        for method, attempt in attempts.items():
            await refused(InvalidId, attempt, what=f"{method} of {short}")

    equal("the list", expected=([], ""), actual=await store.list_runs())
    equal("the run without an owner", expected=None, actual=await store.head("owned"))


@ids.check("JournalPort")
async def any_other_id_is_just_a_name(it: Bench) -> None:
    """Paths, patterns, quotes and percent signs name runs and owners like any other."""
    store = it.store
    for run in HOSTILE:
        lease = await store.acquire(run, run, TTL_SECONDS)
        await store.append(run, [row(1, run)], after=0, lease=lease, summary=summary())
        head = await store.head(run)
        equal("run and owner", expected=(run, run), actual=head and (head.run, head.owner))
        renewed = await it.renew({run: lease})
        equal(
            "the renewal",
            expected=[(run, 1, False)],
            actual=[(key, one.seq, one.lost) for key, one in renewed.items()],
        )

    for run in HOSTILE:
        equal(f"rows of {run[:40]!r}", expected=[row(1, run)], actual=await store.read(run))
    page, _ = await store.list_runs()
    equal("the list", expected=sorted(HOSTILE), actual=[one.run for one in page])


@ids.check("JournalPort.delete_run")
async def deleting_matches_no_pattern(it: Bench) -> None:
    """Of runs with hostile names exactly the one that is named goes."""
    store, left = it.store, set(HOSTILE)
    for run in HOSTILE:
        await store.append(run, rows(1), after=0, lease=None, summary=summary("done"))

    for run in HOSTILE[::2]:
        equal(f"deleted {run[:40]!r}", expected=True, actual=await store.delete_run(run))
        left.remove(run)
        page, _ = await store.list_runs()
        equal("the list", expected=left, actual={one.run for one in page})
    for run in HOSTILE[1::2]:
        equal(f"rows of {run[:40]!r}", expected=rows(1), actual=await store.read(run))


@ids.check("JournalPort.entomb", "tombstones")
async def entombing_matches_no_pattern(it: Bench) -> None:
    """Of ended runs with hostile names exactly the one that is named loses its entries."""
    store, left = it.store, set(HOSTILE)
    ended = summary("done", updated_at=1)
    for run in HOSTILE:
        await store.append(run, rows(1), after=0, lease=None, summary=ended)

    for run in HOSTILE[::2]:
        equal(f"entombed {run[:40]!r}", expected=True, actual=await store.entomb(run, updated_at=1))
        left.remove(run)
        found = {one for one in HOSTILE if await store.read(one)}
        equal("runs with entries", expected=left, actual=found)


@ids.check("JournalPort.claimable", "due")
async def agents_of_due_runs_may_have_any_name(it: Bench) -> None:
    """A worker that serves an agent with a hostile name gets its runs and no others."""
    for number, agent in enumerate(HOSTILE):
        due = msgspec.structs.replace(summary(agent=agent), due_at=0)
        await it.store.append(f"r{number:02}", rows(1), after=0, lease=None, summary=due)

    for number, agent in enumerate(HOSTILE):
        found = [(one.run, one.agent) for one in await it.store.claimable(agents=[agent])]
        expected = [(f"r{number:02}", agent)]
        equal(f"what is due of {agent[:40]!r}", expected=expected, actual=found)
    for text in REFUSED:
        attempt = it.store.claimable(agents=[text])
        found_none = await _answer(attempt, f"what is due of {text[:20]!r}")
        equal(f"what is due of {text[:20]!r}", expected=[], actual=found_none or [])


@ids.check("Summary")
async def agents_may_have_any_name(it: Bench) -> None:
    """The name comes back as it was given, and finds its own runs and no others."""
    for number, agent in enumerate(HOSTILE):
        made = summary(agent=agent, detail=agent.encode())
        await it.store.append(f"r{number:02}", rows(1), after=0, lease=None, summary=made)

    for number, agent in enumerate(HOSTILE):
        page, _ = await it.store.list_runs(agent=agent)
        found = [(one.run, one.summary.agent, one.summary.detail) for one in page]
        expected = [(f"r{number:02}", agent, agent.encode())]
        equal(f"runs of {agent[:40]!r}", expected=expected, actual=found)


@ids.check("JournalPort.list_runs")
async def a_filter_that_fits_nothing_finds_nothing(it: Bench) -> None:
    """Texts that nothing can be called are no names, or are refused; they never find all."""
    await it.store.append("r", rows(1), after=0, lease=None, summary=summary())

    for text in (*HOSTILE, *REFUSED):
        found = await _answer(it.store.list_runs(agent=text), f"a list of runs of {text[:20]!r}")
        equal(f"runs of {text[:20]!r}", expected=([], ""), actual=found or ([], ""))
        status = it.store.list_runs(status=cast("RunStatus", text))
        found = await _answer(status, f"a list of runs that are {text[:20]!r}")
        equal(f"runs that are {text[:20]!r}", expected=([], ""), actual=found or ([], ""))


@ids.check("JournalPort.scoped")
async def scopes_may_have_any_name(it: Bench) -> None:
    """Tenants and users with hostile names have their own runs, and their keys come back."""
    store = it.store
    pairs = [(one, "") for one in HOSTILE] + [("", one) for one in HOSTILE]
    for number, pair in enumerate(pairs):
        view = store.scoped(Scope(*pair))
        await view.append("r", [row(1, str(number))], after=0, lease=None, summary=summary())

    for number, pair in enumerate(pairs):
        found = await store.scoped(Scope(*pair)).read("r")
        equal(f"rows in {pair[0][:40]!r}", expected=[row(1, str(number))], actual=found)


@ids.check("JournalPort.scopes", "scopes")
async def scopes_with_any_name_are_listed(it: Bench) -> None:
    """In order, and from any text on, one that is no scope included."""
    store = it.store
    for text in HOSTILE:
        view = store.scoped(Scope(text, text))
        await view.append("r", rows(1), after=0, lease=None, summary=summary())
    every = sorted(Scope(text, text).key for text in HOSTILE)

    equal("the scopes", expected=every, actual=await store.scopes())
    for text in (*HOSTILE, "\U0010ffff" * 600):
        found = await store.scopes(after=text, limit=3)
        expected = [key for key in every if key > text][:3]
        equal(f"three after {text[:40]!r}", expected=expected, actual=found)
    for text in ("a\x00b", "a\ud800b"):
        await _answer(store.scopes(after=text), f"scopes after {text!r}")


@ids.check("CheckpointPort")
async def slots_may_have_any_name(it: Bench) -> None:
    """Run ids and agent names of slots, and what a checkpoint holds, come back as given."""
    for text in HOSTILE:
        slot = agent_slot(text, text)
        saved = Checkpoint(slot, 1, CheckpointStatus.RUNNING, {text: [text]})
        await it.port.save(saved)

        equal(f"latest of {slot[:40]!r}", expected=saved, actual=await it.port.latest(slot))
        versions = await it.port.list_versions(slot)
        equal(f"versions of {slot[:40]!r}", expected=[1], actual=versions)
        first = await it.port.at_version(slot, 1)
        equal(f"version 1 of {slot[:40]!r}", expected=saved, actual=first)
    for number, text in enumerate(HOSTILE, 1):
        await it.port.delete(agent_slot(text, text))
        page, _ = await it.store.list_runs()
        equal("how many runs are left", expected=len(HOSTILE) - number, actual=len(page))
    for text in REFUSED[2:]:
        slot = f"{text}:agent:a"
        save = it.port.save(Checkpoint(slot, 1, CheckpointStatus.RUNNING, {}))
        await refused(InvalidId, save, what=f"save in {slot!r}")
        await _answer(it.port.latest(slot), f"latest of {slot!r}")
        await _answer(it.port.at_version(slot, 1), f"version 1 of {slot!r}")
        await _answer(it.port.list_versions(slot), f"versions of {slot!r}")
        await _answer(it.port.delete(slot), f"delete of {slot!r}")
    odd = it.port.save(Checkpoint("r:agent:a", 1, "'; DROP TABLE x --", {}))
    await _answer(odd, "saving a checkpoint with a hostile status")


@ids.check("OncePort", "values")
async def keys_tokens_and_values_may_be_any_text(it: Bench) -> None:
    """Values are JSON of any text; a token that is refused is refused with an error of ours."""
    port = keeps_values(it.store)
    if port is None:
        raise AssertionError("asked of stores that keep values")
    for text in HOSTILE:
        value = json.dumps([text, "\x00\ud800"])
        claim = await port.claim_value(text, token=text, ttl_seconds=TTL_SECONDS)
        equal(f"the claim of {text[:40]!r}", expected="ours", actual=claim.state)
        kept = await port.settle_value(text, token=text, value=value)
        equal("whether the value is kept", expected=True, actual=kept)
        again = await port.claim_value(text, token=f"not {text[:40]}", ttl_seconds=TTL_SECONDS)
        equal("what comes back", expected=value, actual=again.value)
    for text in REFUSED:
        claims = port.claim_value("k", token=text, ttl_seconds=TTL_SECONDS)
        await _answer(claims, f"a claim under the token {text[:20]!r}")
        settles = port.settle_value("k", token=text, value=text)
        await _answer(settles, f"the value {text[:20]!r}")


async def _answer(attempt: Awaitable[object], what: str) -> object:
    """The answer, or None for an error of ours; any other error is a broken promise."""
    try:
        return await attempt
    except AgentkitError:
        return None
    except Exception as exc:
        raise Broken(
            f"{what}: expected an answer or an error of agentkit, got {type(exc).__name__}: {exc}"
        ) from exc
