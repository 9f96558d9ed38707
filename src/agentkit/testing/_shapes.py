"""How a message is written down in the log of what was asked of a model."""

from __future__ import annotations

from agentkit.core.contracts.types import JSON, Message
from agentkit.core.contracts.values import digest

__all__ = ["shape"]


def shape(message: Message) -> list[JSON]:
    """What the rules of pairing are about (role, calls, answered call), and a digest of all."""
    calls = [[call.id, call.name, call.arguments] for call in message.tool_calls]
    seen = [message.role, message.content, calls, message.tool_call_id, message.is_error]
    ids: list[JSON] = [call.id for call in message.tool_calls]
    return [message.role, ids, message.tool_call_id, digest("message", seen)]
