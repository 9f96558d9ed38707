"""Damaged journals through the public door: an error with its position, never an older state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from agentkit.core.contracts.errors import AgentkitError, JournalDamaged, JournalTooNew
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.state.journal.codec import checksum
from agentkit.tools import tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, then

EFFECTS: list[str] = []


@tool(side_effecting=True, idempotent=True)
async def pay(order: str) -> str:
    """Pay an order."""
    EFFECTS.append(order)
    return f"paid {order}"


async def interrupted(path: Path) -> None:
    """A run that stopped in order after its first step."""
    store = SqliteCheckpointStore(path)
    stream = agent_of(pay).stream(TASK, context(then(calls(call("pay", order="o1"))), store))
    async for event in stream:
        if event.type == "step":
            break
    await stream.aclose()
    await store.aclose()


def newest(path: Path, change: Callable[[bytes, bytes, bytes], tuple[bytes, bytes]]) -> int:
    """Rewrite the newest entry with what `change` makes of body, checksum and the one before."""
    connection = apsw.Connection(str(path))
    rows: list[tuple[int, bytes, bytes]] = connection.execute(  # type: ignore[assignment] # by schema
        "SELECT place, body, chained FROM agentkit_entry ORDER BY place DESC LIMIT 2"
    ).fetchall()
    place, body, tip = rows[0]
    changed, new_tip = change(body, tip, rows[1][2])
    connection.execute(
        "UPDATE agentkit_entry SET body = ?, chained = ? WHERE place = ?",
        (changed, new_tip, place),
    )
    connection.close()
    return place & 0xFFFFFFFF


def unknown_kind(body: bytes, _: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A kind of a later release, correctly chained."""
    changed = body.replace(b'"step_completed"', b'"step_dreamt_of"')
    return changed, checksum(before, changed)


def wrong_key(body: bytes, _: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A field that the kind needs has another name, correctly chained."""
    changed = body.replace(b'"version"', b'"edition"')
    return changed, checksum(before, changed)


def bad_checksum(body: bytes, tip: bytes, _: bytes) -> tuple[bytes, bytes]:
    """The bytes were changed and the checksum was not."""
    return body.replace(b'"iteration":1', b'"iteration":7'), tip


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (unknown_kind, JournalTooNew),
        (wrong_key, JournalTooNew),
        (bad_checksum, JournalDamaged),
    ],
)
async def test_f080_an_undecodable_newest_entry_stops_the_run(
    tmp_path: Path,
    change: Callable[[bytes, bytes, bytes], tuple[bytes, bytes]],
    kind: type[AgentkitError],
) -> None:
    """The error names the entry; nothing goes on from the state before it, nothing is written."""
    EFFECTS.clear()
    path = tmp_path / "runs.db"
    await interrupted(path)
    seq = newest(path, change)
    store = SqliteCheckpointStore(path)
    checkpointer = Checkpointer(port=store)
    llm = then(calls(call("pay", order="o1")))

    with pytest.raises(kind, match=f"entry {seq}"):
        await agent_of(pay).run(TASK, context(llm, store))
    with pytest.raises(kind, match=f"entry {seq}"):
        await agent_of(pay).resume(RUN, {}, context(llm, store))
    with pytest.raises(kind, match=f"entry {seq}"):
        await checkpointer.resume(RUN)
    head = await store.head(RUN)
    await store.aclose()

    assert ["o1"] == EFFECTS
    assert [] == llm.requests
    assert head is not None
    assert (seq, "") == (head.seq, head.owner)
