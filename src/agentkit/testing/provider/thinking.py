"""Seals on thinking blocks: issued with a MAC, verified from the request alone.

A seal binds the text of a thinking block to everything before its message (system prompt, tools,
earlier messages) and to its place among the blocks of its own message. The provider keeps nothing:
whoever holds the secret can verify a seal in another process or after a restart.

Signatures of the real service are recognised by their first byte and accepted unread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body, canonical, rows, table, text

__all__ = ["BETWEEN_TOOLS_ID", "THINKING_TYPES", "prefix_of", "seal_blocks", "thinking_refusals"]

THINKING_TYPES = ("thinking", "redacted_thinking")

BETWEEN_TOOLS_ID = "toolu_fake_t_"
"""Ids of calls that the provider issued beside a thinking block begin so: a message of an open tool
loop that bears such an id and no thinking has lost it, even where the model need not have thought.
"""

_SECRET = b"agentkit strict provider"
# A seal may not become a foreign signature by a change of one base64 character: 0x0b differs from
# 0x12 in both groups of bits that the first two characters carry.
_OURS = b"\x0bagk"
_FOREIGN_FIRST_BYTE = 0x12
_PREFIX_BYTES = 16
_SHAPE_BYTES = 10  # a seal is 48 bytes: no padding whose bits nobody reads
_MAC_BYTES = 16

_CHANGED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
    "These blocks must remain as they were in the original response."
)
_MISSING = (
    "When `thinking` is enabled, a final `assistant` message must start with a thinking block "
    "(preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you "
    "include thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a thinking block stands: what its seal binds besides the text."""

    prefix: bytes
    ordinal: int
    first: bool
    shape: bytes

    def encode(self) -> bytes:
        return _OURS + bytes([self.ordinal, self.first]) + self.shape + self.prefix


def prefix_of(body: Body, before: int) -> bytes:
    """Hash what precedes message `before`: system prompt, tools and messages.

    Cache markers do not count, a string equals its one text block, and consecutive messages of one
    role equal the message they are combined into: the service reads them alike.
    """
    turns: list[list[object]] = []
    for message in rows(body.get("messages"))[:before]:
        role, content = table(message).get("role"), _plain(table(message).get("content"))
        if turns and turns[-1][0] == role:
            turns[-1].append(content)
        else:
            turns.append([role, content])
    flat = [[turn[0], [block for part in turn[1:] for block in rows(part)]] for turn in turns]
    value = [_plain(body.get("system") or []), _unmarked(body.get("tools") or []), flat]
    return hashlib.sha256(canonical(value)).digest()[:_PREFIX_BYTES]


def seal_blocks(blocks: Sequence[Body], *, prefix: bytes) -> list[Body]:
    """Return the content of an answer with each unsealed thinking block sealed.

    Args:
        blocks: the assistant content; a ``thinking`` block without ``signature`` and a
            ``redacted_thinking`` block whose ``data`` is plain text are sealed, a ``thinking``
            block that brings a signature goes out as it is.
        prefix: `prefix_of` the request that is being answered.
    """
    sealed: list[Body] = []
    for index, place in _places(blocks, prefix):
        block = dict(blocks[index])
        if place is not None and block["type"] == "thinking" and "signature" not in block:
            block["signature"] = _seal(place, "thinking", text(block.get("thinking")))
        elif place is not None and block["type"] == "redacted_thinking":
            block["data"] = _seal(place, "redacted_thinking", text(block.get("data")))
        sealed.append(block)
    return sealed


def thinking_refusals(body: Body) -> Iterator[Refusal]:
    """Yield what is wrong with the thinking blocks of a request, in the order of its messages."""
    messages = [table(message) for message in rows(body.get("messages"))]
    for index, message in enumerate(messages):
        blocks = [table(block) for block in rows(message.get("content"))]
        if message.get("role") == "assistant" and any(_is_thinking(block) for block in blocks):
            yield from _seal_refusals(blocks, index, prefix_of(body, index))
    yield from _loop_refusals(body, messages)


def _seal_refusals(blocks: list[Body], index: int, prefix: bytes) -> Iterator[Refusal]:
    for position, place in _places(blocks, prefix):
        if place is None:
            continue
        where = f"messages.{index}.content.{position}"
        block = blocks[position]
        raw = _unseal(block)
        if raw is not None and raw[:1] == bytes([_FOREIGN_FIRST_BYTE]):
            continue
        kind = text(block.get("type"))
        if raw is None or not raw.startswith(_OURS) or not _is_genuine(raw, block):
            yield Refusal("altered_signature", f"{where}: Invalid `signature` in `{kind}` block")
            continue
        bound = raw[len(_OURS) + 2 + _SHAPE_BYTES :][:_PREFIX_BYTES]
        if bound != prefix:
            yield Refusal(
                "changed_prefix",
                f"{where}: Invalid `signature` in `{kind}` block: system, tools or messages before "
                "it are not those it was issued for",
            )
        elif not raw.startswith(place.encode()):
            yield Refusal("thinking_moved", f"{where}: {_CHANGED}")


def _loop_refusals(body: Body, messages: list[Body]) -> Iterator[Refusal]:
    """An open tool loop must still carry the thinking that its calls were made with."""
    first = _open_loop_start(messages)
    if first is None:
        return
    for index in range(first, len(messages)):
        if messages[index].get("role") != "assistant":
            continue
        blocks = [table(block) for block in rows(messages[index].get("content"))]
        if any(_is_thinking(block) for block in blocks[:1]):
            continue
        found = text(blocks[0].get("type")) if blocks else "text"
        forced = index == first and table(body.get("thinking")).get("type") == "enabled"
        lost = not any(_is_thinking(block) for block in blocks) and any(
            text(block.get("id")).startswith(BETWEEN_TOOLS_ID) for block in blocks
        )
        if forced or lost:
            yield Refusal(
                "thinking_missing",
                f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
                f"found `{found}`. {_MISSING}",
            )


def _open_loop_start(messages: list[Body]) -> int | None:
    """Return the first assistant message of the tool loop that the last message continues."""
    if not messages or not _brings_results(messages[-1]):
        return None
    start = None
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "assistant":
            start = index
        elif not _brings_results(messages[index]):
            break
    return start


def _brings_results(message: Body) -> bool:
    return any(table(block).get("type") == "tool_result" for block in rows(message.get("content")))


def _is_thinking(block: Body) -> bool:
    return block.get("type") in THINKING_TYPES


def _places(blocks: Sequence[Body], prefix: bytes) -> Iterator[tuple[int, _Place | None]]:
    """Yield each block's index, and for a thinking block the place its seal binds."""
    kinds = [text(block.get("type")) for block in blocks]
    # A client must drop blank text, which the service writes and does not take back, and relabel
    # ids that repeat; which blocks there are otherwise, and in which order, may not change.
    shape = hashlib.sha256(canonical([kind for kind in kinds if kind != "text"])).digest()
    ordinal = 0
    first = True
    for index, kind in enumerate(kinds):
        if kind in THINKING_TYPES:
            yield index, _Place(prefix, ordinal, first, shape[:_SHAPE_BYTES])
            ordinal += 1
            continue
        yield index, None
        first = first and kind == "text" and not text(blocks[index].get("text")).strip()


def _seal(place: _Place, kind: str, content: str) -> str:
    raw = place.encode() + _mac(place.encode(), kind, content)
    if kind == "redacted_thinking":
        raw += content.encode()
    return base64.b64encode(raw).decode()


def _unseal(block: Body) -> bytes | None:
    sealed = text(block.get("signature" if block.get("type") == "thinking" else "data"))
    try:
        raw = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if raw and base64.b64encode(raw).decode() == sealed else None


def _is_genuine(raw: bytes, block: Body) -> bool:
    kind = text(block.get("type"))
    size = len(_OURS) + 2 + _SHAPE_BYTES + _PREFIX_BYTES
    bound, mac, rest = raw[:size], raw[size : size + _MAC_BYTES], raw[size + _MAC_BYTES :]
    if kind == "thinking":
        return not rest and hmac.compare_digest(mac, _mac(bound, kind, text(block.get("thinking"))))
    return hmac.compare_digest(mac, _mac(bound, kind, rest.decode(errors="replace")))


def _mac(bound: bytes, kind: str, content: str) -> bytes:
    message = bound + kind.encode() + b"\0" + content.encode()
    return hmac.new(_SECRET, message, hashlib.sha256).digest()[:_MAC_BYTES]


def _plain(content: object) -> list[object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return rows(_unmarked(content))


def _unmarked(value: object) -> object:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value
