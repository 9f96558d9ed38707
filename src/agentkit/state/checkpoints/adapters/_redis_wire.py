"""What is sent to Redis as bytes, and what a cluster answers about its slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from agentkit.state.checkpoints.adapters._redis_address import Place


def packed(commands: Sequence[Sequence[str | bytes | int]]) -> bytes:
    """Commands as the protocol has them; the driver takes several times as long over it."""
    parts: list[bytes] = []
    for words in commands:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            said = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(said), said, b"\r\n")
    return b"".join(parts)


def slot_owners(said: object, *, asked: Place) -> list[tuple[int, int, Place]]:
    """First slot, last slot and master of each range in the answer to CLUSTER SLOTS."""
    ranges = cast("list[tuple[int, int, list[object]]]", said)
    return [
        (first, last, (_host(node) or asked[0], int(cast("int", node[1]))))
        for first, last, node, *_ in ranges
    ]


def _host(node: list[object]) -> str:
    """The name of a node in the answer to CLUSTER SLOTS; empty where it is the one that was asked.

    `?` is a node without the name that it should have; then its address stands behind.
    """
    name, about = node[0], cast("list[bytes]", node[3] if len(node) > 3 else [])  # noqa: PLR2004
    if name == b"?":
        name = dict(zip(about[::2], about[1::2], strict=False)).get(b"ip")
    return name.decode() if isinstance(name, bytes) else ""
