"""Chat Completions: each call exactly one result, in call order, directly after its message."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body, rows, table, text

__all__ = ["pairing_refusals"]


def pairing_refusals(body: Body) -> Iterator[Refusal]:
    """Yield what is wrong between calls and results; their shape is checked before."""
    messages = [table(message) for message in rows(body["messages"])]
    calls: list[str] = []
    seen: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            yield from _result_refusals(message, index, calls, seen)
            continue
        yield from _unanswered(calls, seen, index)
        calls = [text(table(call).get("id")) for call in rows(message.get("tool_calls"))]
        seen = {}
        for position, call in enumerate(calls):
            if call in calls[:position]:
                yield Refusal(
                    "duplicate_call_id",
                    f"Invalid parameter: Duplicate value for 'id' of '{call}' in 'tool_calls'.",
                    param=f"messages.[{index}].tool_calls",
                )
    yield from _unanswered(calls, seen, len(messages))


def _result_refusals(
    message: Body, index: int, calls: list[str], seen: dict[str, int]
) -> Iterator[Refusal]:
    label = text(message.get("tool_call_id"))
    if not calls:
        yield Refusal(
            "orphan_result",
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            param=f"messages.[{index}].role",
        )
    elif label not in calls:
        yield Refusal(
            "orphan_result",
            f"Invalid parameter: 'tool_call_id' of '{label}' not found in 'tool_calls' of previous "
            "message.",
            param=f"messages.[{index}].tool_call_id",
        )
    elif label in seen:
        yield Refusal(
            "duplicate_result",
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{label}', in "
            f"messages[{seen[label]}] and messages[{index}].",
            param=f"messages.[{index}].tool_call_id",
        )
    elif label != calls[len(seen)]:
        yield Refusal(
            "reordered_results",
            f"Invalid parameter: messages with role 'tool' must stand in the order of "
            f"'tool_calls': expected '{calls[len(seen)]}', found '{label}'.",
            param=f"messages.[{index}].tool_call_id",
        )
    seen[label] = index


def _unanswered(calls: list[str], seen: dict[str, int], index: int) -> Iterator[Refusal]:
    unanswered = [call for call in calls if call not in seen]
    if unanswered:
        yield Refusal(
            "dangling_call",
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(unanswered)}",
            param=f"messages.[{index}].role",
        )
