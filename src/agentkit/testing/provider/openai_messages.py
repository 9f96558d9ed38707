"""Chat Completions: what each message may hold, looked at by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkit.testing.provider.argument_names import bad_argument_name
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import BadJson, Body, parse, rows, table, text

__all__ = ["message_refusals", "missing", "too_short"]

_PARTS = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
    "function": ("text",),
}
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME = 64
_MAX_ID = 40


def missing(param: str) -> Refusal:
    """Return the refusal of a request without a required parameter."""
    return Refusal(
        "missing_field",
        f"Missing required parameter: '{param}'.",
        param=param,
        code="missing_required_parameter",
    )


def too_short(param: str) -> Refusal:
    """Return the refusal of an array that must hold something and does not."""
    return Refusal(
        "empty_content" if param.startswith("messages[") else "empty_array",
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead.",
        param=param,
        code="empty_array",
    )


def message_refusals(message: object, index: int) -> Iterator[Refusal]:
    """Yield what is wrong with one message; pairing is looked at elsewhere."""
    where = f"messages[{index}]"
    role = text(table(message).get("role"))
    if role not in _PARTS:
        yield Refusal(
            "bad_role",
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', "
            "'function', 'tool', and 'developer'.",
            param=f"{where}.role",
            code="invalid_value",
        )
        return
    body = table(message)
    if role == "tool" and not text(body.get("tool_call_id")):
        yield missing(f"{where}.tool_call_id")
    if role == "assistant":
        yield from _calls_refusals(body, where)
    speaks = any(body.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
    if body.get("content") is not None or not (role == "assistant" and speaks):
        yield from _content_refusals(body, role, index)


def _content_refusals(body: Body, role: str, index: int) -> Iterator[Refusal]:
    where = f"messages[{index}].content"
    content = body.get("content")
    if "content" not in body:
        yield missing(where)
    elif content is None:
        yield Refusal(
            "empty_content",
            "Invalid value for 'content': expected a string, got null.",
            param=f"messages.[{index}].content",
        )
    elif content == []:
        yield too_short(where)
    elif not isinstance(content, (str, list)):
        yield Refusal(
            "bad_message",
            f"Invalid type for '{where}': expected one of a string or array of objects.",
            param=where,
            code="invalid_type",
        )
    if isinstance(content, str):
        yield from _blank(content, where)
    for position, part in enumerate(rows(content)):
        kind = text(table(part).get("type"))
        if kind not in _PARTS[role]:
            yield Refusal(
                "bad_block",
                f"Invalid value: '{kind}'. Supported values are: {', '.join(_PARTS[role])}.",
                param=f"{where}[{position}].type",
                code="invalid_value",
            )
        if kind == "text":
            yield from _blank(text(table(part).get("text")), f"{where}[{position}].text")


def _blank(value: str, param: str) -> Iterator[Refusal]:
    if not value.strip():
        yield Refusal(
            "empty_text",
            f"Invalid '{param}': text must be non-empty.",
            param=param,
            code="invalid_value",
        )


def _calls_refusals(body: Body, where: str) -> Iterator[Refusal]:
    calls = body.get("tool_calls")
    if calls == []:
        yield too_short(f"{where}.tool_calls")
    elif calls is not None and not isinstance(calls, list):
        yield Refusal(
            "bad_message",
            f"Invalid type for '{where}.tool_calls': expected an array of objects.",
            param=f"{where}.tool_calls",
            code="invalid_type",
        )
    for position, call in enumerate(rows(calls)):
        yield from _call_refusals(table(call), f"{where}.tool_calls[{position}]")


def _call_refusals(call: Body, where: str) -> Iterator[Refusal]:
    label, kind = text(call.get("id")), call.get("type")
    if not label:
        yield missing(f"{where}.id")
    elif len(label) > _MAX_ID:
        yield _too_long("bad_call_id", f"{where}.id", limit=_MAX_ID, length=len(label))
    if kind == "custom":
        return
    if kind != "function":
        yield missing(f"{where}.type")
    function = table(call.get("function"))
    name = text(function.get("name"))
    if not _NAME.fullmatch(name):
        yield Refusal(
            "bad_tool_name",
            f"Invalid '{where}.function.name': string does not match pattern. Expected a string "
            "that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=f"{where}.function.name",
            code="invalid_value",
        )
    if len(name) > _MAX_NAME:
        yield _too_long(
            "bad_tool_name", f"{where}.function.name", limit=_MAX_NAME, length=len(name)
        )
    yield from _argument_refusals(function, f"{where}.function.arguments")


def _argument_refusals(function: Body, where: str) -> Iterator[Refusal]:
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        yield Refusal(
            "bad_arguments",
            f"Invalid type for '{where}': expected a string.",
            param=where,
            code="invalid_type",
        )
        return
    try:
        parsed = parse(arguments)
    except BadJson as error:
        yield Refusal(
            "bad_arguments",
            f"Invalid '{where}': the string must hold valid JSON: {error}",
            param=where,
            code="invalid_value",
        )
        return
    name = bad_argument_name(table(parsed))
    if not isinstance(parsed, dict) or name is not None:
        rule, what = (
            ("bad_arguments", "the string must hold a JSON object")
            if name is None
            else ("bad_argument_name", f"invalid property name {name[:40]!r}")
        )
        yield Refusal(rule, f"Invalid '{where}': {what}.", param=where, code="invalid_value")


def _too_long(rule: str, param: str, *, limit: int, length: int) -> Refusal:
    return Refusal(
        rule,
        f"Invalid '{param}': string too long. Expected a string with maximum length {limit}, but "
        f"got a string with length {length} instead.",
        param=param,
        code="string_above_max_length",
    )
