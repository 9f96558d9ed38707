"""Messages API: what each message and block may hold, and which text counts as empty."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkit.testing.provider.argument_names import bad_argument_name
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body, rows, table, text

__all__ = ["content_refusals"]

_ROLES = ("user", "assistant", "system")
_USER_BLOCKS = frozenset(
    """container_upload document image mid_conv_system search_result text tool_addition
    tool_removal tool_result browser_state""".split()
)
_ASSISTANT_ONLY = ("thinking", "redacted_thinking", "tool_use", "server_tool_use")
_FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    # type: (required, optional); `type` itself is understood
    "text": (frozenset({"text"}), frozenset({"cache_control", "citations"})),
    "thinking": (frozenset({"thinking", "signature"}), frozenset()),
    "redacted_thinking": (frozenset({"data"}), frozenset()),
    "image": (frozenset({"source"}), frozenset({"cache_control", "transformations"})),
    "tool_use": (
        frozenset({"id", "name", "input"}),
        frozenset({"cache_control", "caller", "toolset_name"}),
    ),
    "tool_result": (
        frozenset({"tool_use_id"}),
        frozenset({"cache_control", "content", "is_error", "toolset_name"}),
    ),
}
_STRINGS = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
}
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PREFILL = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)


def content_refusals(body: Body) -> Iterator[Refusal]:
    """Yield what is wrong with system prompt and messages, each looked at by itself."""
    yield from _system_refusals(body.get("system"))
    messages = rows(body["messages"])
    for index, message in enumerate(messages):
        yield from _message_refusals(message, index)
    last = table(messages[-1])
    # A paused turn of a server tool is sent back as the last message; any other is a prefill.
    blocks = [table(block) for block in rows(last.get("content"))]
    paused = any(block.get("type") == "server_tool_use" for block in blocks)
    calls = any(block.get("type") == "tool_use" for block in blocks)
    if last.get("role") == "assistant" and not paused and not calls:
        yield Refusal("prefill", _PREFILL)
    yield from _tools_defined(body, messages)


def _system_refusals(system: object) -> Iterator[Refusal]:
    if system is None:
        return
    if not isinstance(system, (str, list)):
        yield Refusal("bad_field", "system: Input should be a valid string")
    for block in [{"type": "text", "text": system}] if isinstance(system, str) else rows(system):
        if table(block).get("type") != "text":
            yield Refusal("bad_block", "system: Input should be text content blocks")
        yield from _blank(text(table(block).get("text")), "system")


def _tools_defined(body: Body, messages: list[object]) -> Iterator[Refusal]:
    if rows(body.get("tools")) or rows(body.get("mcp_servers")):
        return
    for message in messages:
        for block in rows(table(message).get("content")):
            if table(block).get("type") in ("tool_use", "tool_result"):
                yield Refusal(
                    "tools_missing",
                    "Requests which include `tool_use` or `tool_result` blocks must define tools",
                )


def _message_refusals(message: object, index: int) -> Iterator[Refusal]:
    where = f"messages.{index}"
    if not isinstance(message, dict):
        yield Refusal("bad_message", f"{where}: Input should be a valid dictionary")
        return
    for name in message:
        if name not in ("role", "content"):
            yield Refusal("unknown_field", f"{where}.{name}: Extra inputs are not permitted")
    role, content = text(message.get("role")), message.get("content")
    if role not in _ROLES:
        yield Refusal(
            "bad_role",
            f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant".',
        )
    if content is None:
        yield Refusal("bad_message", f"{where}.content: Field required")
    elif not isinstance(content, (str, list)):
        yield Refusal("bad_message", f"{where}.content: Input should be a valid list")
    elif not content:
        yield Refusal("empty_content", f"{where}: {role} messages must have non-empty content")
    if isinstance(content, str):
        yield from _blank(content, "messages")
    for position, block in enumerate(rows(content)):
        yield from _block_refusals(block, role, f"{where}.content.{position}")


def _block_refusals(block: object, role: str, where: str) -> Iterator[Refusal]:
    kind = table(block).get("type")
    if not isinstance(block, dict) or not isinstance(kind, str):
        yield Refusal("bad_block", f"{where}: Unable to extract tag using discriminator 'type'")
        return
    if role == "user" and kind in _ASSISTANT_ONLY:
        yield Refusal(
            "misplaced_block", f"{where}: `{kind}` blocks can only be in `assistant` messages"
        )
    elif role == "assistant" and kind == "tool_result":
        yield Refusal(
            "misplaced_block", f"{where}: `tool_result` blocks can only be in `user` messages"
        )
    elif role == "user" and kind not in _USER_BLOCKS:
        yield Refusal(
            "bad_block",
            f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected "
            "tags",
        )
    yield from _block_field_refusals(block, kind, f"{where}.{kind}")
    if kind == "text":
        yield from _blank(text(block.get("text")), "messages")
    elif kind == "tool_use":
        yield from _call_refusals(block, f"{where}.tool_use")
    elif kind == "tool_result":
        yield from _result_refusals(block, f"{where}.tool_result")


def _block_field_refusals(block: Body, kind: str, where: str) -> Iterator[Refusal]:
    """An assistant block of a type that this table does not hold passes as it is."""
    if kind not in _FIELDS:
        return
    required, optional = _FIELDS[kind]
    for name in sorted(required - block.keys()):
        yield Refusal("bad_block", f"{where}.{name}: Field required")
    for name in sorted(block.keys() - required - optional - {"type"}):
        yield Refusal("unknown_field", f"{where}.{name}: Extra inputs are not permitted")
    for name in _STRINGS.get(kind, ()):
        if not isinstance(block[name], str):
            yield Refusal("bad_block", f"{where}.{name}: Input should be a valid string")


def _call_refusals(block: Body, where: str) -> Iterator[Refusal]:
    if not _ID.fullmatch(text(block["id"])):
        yield Refusal("bad_call_id", f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not _NAME.fullmatch(text(block["name"])):
        pattern = "'^[a-zA-Z0-9_-]{1,128}$'"
        yield Refusal("bad_tool_name", f"{where}.name: String should match pattern {pattern}")
    if not isinstance(block["input"], dict):
        yield Refusal("bad_arguments", f"{where}.input: Input should be a valid dictionary")
    name = bad_argument_name(table(block["input"]))
    if name is not None:
        yield Refusal("bad_argument_name", f"{where}.input: invalid property name {name[:40]!r}")


def _result_refusals(block: Body, where: str) -> Iterator[Refusal]:
    content = block.get("content")
    if content is not None and not isinstance(content, (str, list)):
        yield Refusal("bad_block", f"{where}.content: Input should be a valid list")
    if not isinstance(block.get("is_error", False), bool):
        yield Refusal("bad_block", f"{where}.is_error: Input should be a valid boolean")
    if block.get("is_error") and not content:
        yield Refusal("empty_content", f"{where}: content cannot be empty if `is_error` is true")
    if isinstance(content, str):
        yield from _blank(content, where)
    for part in rows(content):
        if not isinstance(table(part).get("type"), str):
            yield Refusal("bad_block", f"{where}.content: Unable to extract tag using 'type'")
        if table(part).get("type") == "text":
            yield from _blank(text(table(part).get("text")), where)


def _blank(value: str, where: str) -> Iterator[Refusal]:
    if not value:
        yield Refusal("empty_text", f"{where}: text content blocks must be non-empty")
    elif not value.strip():
        yield Refusal(
            "empty_text", f"{where}: text content blocks must contain non-whitespace text"
        )
