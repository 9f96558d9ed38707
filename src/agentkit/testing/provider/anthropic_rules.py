"""What the Messages API refuses, decided from the request alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkit.testing.provider.anthropic_content import content_refusals
from agentkit.testing.provider.anthropic_pairing import pairing_refusals
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body, rows, table, text
from agentkit.testing.provider.thinking import thinking_refusals

__all__ = ["check"]

_FIELDS = frozenset(
    """billing_policy cache_control compaction container context_management diagnostics
    fallback_credit_token fallbacks inference_geo max_tokens mcp_servers messages metadata model
    output_config output_format service_tier speed stop_sequences stream system temperature thinking
    thread tool_choice tools top_k top_p user_profile_id workspace_id""".split()
)
_TOOL_FIELDS = frozenset(
    """allowed_callers cache_control defer_loading description eager_input_streaming input_examples
    input_schema name strict type""".split()
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_MIN_THINKING_TOKENS = 1024


def check(request: Body) -> Refusal | None:
    """Say why the Messages API would refuse a request.

    Three rules are ours and not the service's: results stand in the order of their calls, no blank
    string leaves (the service refuses blank text blocks; a string is shorthand for one), and an
    argument's name is printable and not longer than 256 characters.

    Args:
        request: the parsed body of ``POST /v1/messages``.

    Returns:
        The first refusal, or None if the request is valid.
    """
    return next(_refusals(request), None)


def _refusals(body: Body) -> Iterator[Refusal]:
    yield from _field_refusals(body)
    yield from _tool_refusals(body)
    yield from _choice_refusals(body)
    yield from _budget_refusals(body)
    yield from content_refusals(body)
    yield from pairing_refusals(body)
    yield from thinking_refusals(body)


def _field_refusals(body: Body) -> Iterator[Refusal]:
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            yield Refusal("missing_field", f"{name}: Field required")
    for name in body:
        if name not in _FIELDS:
            yield Refusal("unknown_field", f"{name}: Extra inputs are not permitted")
    if not text(body["model"]):
        yield Refusal("bad_field", "model: Input should be a valid string")
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        yield Refusal("bad_field", "max_tokens: Input should be a valid integer")
    elif limit < 1:
        yield Refusal("bad_field", "max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body["messages"], list):
        yield Refusal("bad_field", "messages: Input should be a valid list")
    elif not body["messages"]:
        yield Refusal("no_messages", "messages: at least one message is required")
    if not isinstance(body.get("stream", False), bool):
        yield Refusal("bad_field", "stream: Input should be a valid boolean")


def _tool_refusals(body: Body) -> Iterator[Refusal]:
    names: set[str] = set()
    for index, tool in enumerate(rows(body.get("tools"))):
        kind = table(tool).get("type") or "custom"
        name = table(tool).get("name")
        if kind == "custom":
            yield from _custom_tool_refusals(table(tool), f"tools.{index}.custom")
        if isinstance(name, str) and name in names:
            yield Refusal("duplicate_tool_name", "tools: Tool names must be unique.")
        names.add(text(name))


def _custom_tool_refusals(tool: Body, where: str) -> Iterator[Refusal]:
    for name in tool:
        if name not in _TOOL_FIELDS:
            yield Refusal("unknown_field", f"{where}.{name}: Extra inputs are not permitted")
    if not _TOOL_NAME.fullmatch(text(tool.get("name"))):
        pattern = "'^[a-zA-Z0-9_-]{1,128}$'"
        yield Refusal("bad_tool_name", f"{where}.name: String should match pattern {pattern}")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        yield Refusal("bad_tool_schema", f"{where}.input_schema: Field required")
    elif schema.get("type") != "object":
        yield Refusal("bad_tool_schema", f"{where}.input_schema.type: Input should be 'object'")
    for name in table(table(schema).get("properties")):
        if not _PROPERTY_NAME.fullmatch(name):
            yield Refusal(
                "bad_tool_schema",
                f"{where}.input_schema.properties: Property keys should match pattern "
                "'^[a-zA-Z0-9_.-]{1,64}$'",
            )


def _choice_refusals(body: Body) -> Iterator[Refusal]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = table(choice).get("type")
    if kind not in ("auto", "any", "tool", "none"):
        yield Refusal(
            "bad_field",
            f"tool_choice: Input tag {kind!r} found using 'type' does not match any of the "
            "expected tags: 'auto', 'any', 'tool', 'none'",
        )
    tools = [table(tool) for tool in rows(body.get("tools"))]
    if not tools:
        yield Refusal(
            "choice_without_tools", "tool_choice: may only be specified while providing `tools`."
        )
    name = table(choice).get("name")
    if kind == "tool" and all(tool.get("name") != name for tool in tools):
        yield Refusal("unknown_tool_choice", f"Tool '{name}' not found in provided tools")
    if kind in ("any", "tool") and table(body.get("thinking")).get("type") == "enabled":
        yield Refusal(
            "thinking_with_forced_tool",
            "Thinking may not be enabled when tool_choice forces tool use.",
        )


def _budget_refusals(body: Body) -> Iterator[Refusal]:
    thinking = table(body.get("thinking"))
    if thinking.get("type") != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), body["max_tokens"]
    if not isinstance(budget, int) or budget < _MIN_THINKING_TOKENS:
        yield Refusal(
            "bad_thinking_budget",
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        )
    elif isinstance(limit, int) and limit <= budget:
        yield Refusal(
            "bad_thinking_budget", "`max_tokens` must be greater than `thinking.budget_tokens`."
        )
