"""What the Chat Completions API and its strict compatible services refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentkit.testing.provider.openai_messages import message_refusals, missing, too_short
from agentkit.testing.provider.openai_pairing import pairing_refusals
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body, rows, table, text

__all__ = ["check"]

_FIELDS = frozenset(
    """audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens
    max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction
    presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort
    response_format safety_identifier seed service_tier stop store stream stream_options temperature
    tool_choice tools top_logprobs top_p user verbosity web_search_options""".split()
)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check(request: Body) -> Refusal | None:
    """Say why the Chat Completions API would refuse a request.

    Stricter than the service itself, as some compatible services are or as our own contract is: the
    arguments of a call are a JSON object, results stand in the order of their calls, ids of one
    message's calls differ, no blank text leaves, and argument names are printable. `n` is 1.

    Args:
        request: the parsed body of ``POST /v1/chat/completions``.

    Returns:
        The first refusal, or None if the request is valid.
    """
    return next(_refusals(request), None)


def _refusals(body: Body) -> Iterator[Refusal]:
    yield from _field_refusals(body)
    yield from _tool_refusals(body)
    for index, message in enumerate(rows(body["messages"])):
        yield from message_refusals(message, index)
    yield from pairing_refusals(body)


def _field_refusals(body: Body) -> Iterator[Refusal]:
    if not text(body.get("model")):
        yield Refusal("missing_field", "you must provide a model parameter")
    for name in body:
        if name not in _FIELDS:
            yield Refusal("unknown_field", f"Unrecognized request argument supplied: {name}")
    if "messages" not in body:
        yield missing("messages")
    elif not isinstance(body["messages"], list):
        yield Refusal(
            "bad_field",
            "Invalid type for 'messages': expected an array of objects.",
            param="messages",
            code="invalid_type",
        )
    elif not body["messages"]:
        yield too_short("messages")
    if not isinstance(body.get("stream") or False, bool):
        yield Refusal(
            "bad_field",
            "Invalid type for 'stream': expected a boolean.",
            param="stream",
            code="invalid_type",
        )
    if body.get("stream_options") is not None and not body.get("stream"):
        yield Refusal(
            "stream_options_without_stream",
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    if body.get("n") not in (None, 1):
        yield Refusal("unsupported", "This provider gives one choice: 'n' must be 1.", param="n")


def _tool_refusals(body: Body) -> Iterator[Refusal]:
    tools = body.get("tools")
    if tools == []:
        yield too_short("tools")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) is not None and not tools:
            yield Refusal(
                "choice_without_tools",
                f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.",
                param=name,
            )
    names: set[str] = set()
    for index, tool in enumerate(rows(tools)):
        if table(tool).get("type") == "function":
            yield from _function_refusals(table(table(tool).get("function")), index)
            names.add(text(table(table(tool).get("function")).get("name")))
        elif table(tool).get("type") != "custom":
            yield Refusal(
                "bad_field",
                f"Invalid value: '{table(tool).get('type')}'. Supported values are: 'function' and "
                "'custom'.",
                param=f"tools[{index}].type",
                code="invalid_value",
            )
    chosen = table(table(body.get("tool_choice")).get("function")).get("name")
    if chosen is not None and chosen not in names:
        yield Refusal(
            "unknown_tool_choice",
            f"Invalid value for 'tool_choice': no function named '{chosen}' was specified in the "
            "'tools' parameter.",
            param="tool_choice",
        )


def _function_refusals(function: Body, index: int) -> Iterator[Refusal]:
    param = f"tools[{index}].function.name"
    if "name" not in function:
        yield missing(param)
    elif not _NAME.fullmatch(text(function["name"])):
        yield Refusal(
            "bad_tool_name",
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the "
            "pattern '^[a-zA-Z0-9_-]+$'.",
            param=param,
            code="invalid_value",
        )
    schema = function.get("parameters")
    if schema is not None and table(schema).get("type") != "object":
        yield Refusal(
            "bad_tool_schema",
            f"Invalid schema for function '{function['name']}': schema must be a JSON Schema of "
            f"'type: \"object\"', got 'type: \"{table(schema).get('type')}\"'.",
            param=f"tools[{index}].function.parameters",
            code="invalid_function_parameters",
        )
