"""What both adapters need to render a transcript: placeholders, plain arguments, native content."""

from __future__ import annotations

from agentkit.core.contracts.types import JSON, JSONObject, Message, ToolCall
from agentkit.models.providers._json import dump, load, mend

__all__ = [
    "NO_OUTPUT",
    "NO_TEXT",
    "argument_text",
    "is_blank",
    "native_content",
    "plain",
    "schema",
]

NO_TEXT = "(no text)"
"""Stands for a user or assistant message that would be empty: providers refuse empty text."""

NO_OUTPUT = "(no output)"
"""Stands for an empty tool result."""


def is_blank(text: object) -> bool:
    """Whether a text is empty or white space only; providers refuse both."""
    return not isinstance(text, str) or not text.strip()


def plain(text: str, *, placeholder: str) -> str:
    """The text as it may leave."""
    return placeholder if is_blank(text) else mend(text)


def argument_text(call: ToolCall) -> bytes:
    """The call's arguments as JSON; `{}` where the model's own text was not an object."""
    return dump(call.arguments) if isinstance(call.arguments, dict) else b"{}"


def native_content(message: Message, origin: str) -> JSON:
    """The decoded native content if this provider wrote it, else `None`."""
    if message.native is None or message.native.origin != origin:
        return None
    return load(bytes(message.native.content))


def schema(parameters: JSONObject) -> JSONObject:
    """A tool's parameters as both providers want them: a schema of type object."""
    return parameters or {"type": "object", "properties": {}}
