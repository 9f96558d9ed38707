"""The checker sees a run that was begun otherwise than it was submitted."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from agentkit.agents import add_message, cancel, submit
from agentkit.core.contracts.heads import Row
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.invariants import Evidence, check, read_rows
from tests.agents.kit import RUN, TASK, agent_of, context

Entries = list[list[Any]]


async def _journal() -> Entries:
    """Submitted, added to, begun and ended; each entry as it is stored."""
    store = InMemoryCheckpointStore()
    await submit(store, RUN, TASK, agent="worker", identity="ann")
    await add_message(store, RUN, "please")
    await agent_of().resume(RUN, {}, context(FakeLLM("done"), store))
    return [msgspec.json.decode(row.body) for row in await read_rows(store, RUN)]


def _found(entries: Entries) -> set[str]:
    """What the checker says of the I4 of a journal with these entries."""
    rows, before = [], b""
    for seq, entry in enumerate(entries, 1):
        body = msgspec.json.encode([seq, *entry[1:]])
        before = blake2b(before + body, digest_size=8).digest()
        rows.append(Row(seq, body, before))
    evidence = Evidence(run=RUN, rows=tuple(rows))
    return {one.what for one in check(evidence) if one.invariant == "I4"}


def _said(field: str, value: str) -> Callable[[Entries], Entries]:
    def change(entries: Entries) -> Entries:
        entries[0][5][field] = value
        return entries

    return change


async def test_a_run_that_was_begun_as_it_was_submitted_is_sound() -> None:
    """Also one that was cancelled before anybody began it."""
    store = InMemoryCheckpointStore()
    await submit(store, RUN, TASK, agent="worker")
    await cancel(store, RUN)
    cancelled = [msgspec.json.decode(row.body) for row in await read_rows(store, RUN)]

    assert set() == _found(await _journal())
    assert set() == _found(cancelled)


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (_said("task", "else"), "the run was begun with another task than was submitted"),
        (_said("identity", "bob"), "the run was begun with another identity than was submitted"),
        (_said("autonomy", "auto"), "the run was begun with another autonomy than was submitted"),
        (_said("agent", "x"), "the run was begun by another agent than it was submitted for"),
        (lambda e: [e[0], [*e[0][:1], "n2", *e[0][2:]], *e[1:]], "the run has 2 submissions and 1"),
        (lambda e: [*e[:3], e[2], *e[3:]], "the run has 1 submissions and 2 start entries"),
        (lambda e: [e[1], e[0], *e[2:]], "the run has 1 submissions and 1 start entries"),
        (lambda e: [*e[:2], e[4], *e[2:]], "(model_answered) stands before the start of its run"),
        (lambda e: e[3:], "the run has 0 start entries"),
    ],
)
async def test_a_beginning_that_cannot_be_is_seen(
    change: Callable[[Entries], Entries], violation: str
) -> None:
    """Each is told by the entry or the field that does not fit."""
    entries = await _journal()
    assert "model_answered" == entries[4][5]["type"]

    found = _found(change(entries))

    assert any(violation in one for one in found), found
