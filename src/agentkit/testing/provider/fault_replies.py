"""Errors in the words of each service."""

from __future__ import annotations

from agentkit.testing.provider.faults import Fault
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.reply import Reply, json_reply, sse
from agentkit.testing.provider.script import Api

__all__ = ["error_event", "error_reply", "refusal_reply"]

_OVERLOADED = 529
_UNAVAILABLE = 503
_TOO_MANY = 429
_SERVER = 500
_ANTHROPIC = {
    400: ("invalid_request_error", "The request was invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use this resource."),
    404: ("not_found_error", "Not Found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    504: ("timeout_error", "The request timed out."),
    529: ("overloaded_error", "Overloaded"),
}
_OPENAI: dict[int, tuple[str, str, str | None]] = {
    401: ("invalid_request_error", "Incorrect API key provided.", "invalid_api_key"),
    403: ("invalid_request_error", "You are not allowed to use this model.", None),
    404: ("invalid_request_error", "The model does not exist.", "model_not_found"),
    429: ("requests", "Rate limit reached for requests.", "rate_limit_exceeded"),
    503: ("server_error", "The engine is currently overloaded, please try again later", None),
}
_SPENT_ANTHROPIC = (
    "This request would exceed your account's monthly spend limit. Please try again later."
)
_SPENT_OPENAI = (
    "You exceeded your current quota, please check your plan and billing details. For more "
    "information on this error, read the docs: "
    "https://platform.openai.com/docs/guides/error-codes/api-errors."
)
_SERVER_OPENAI = "The server had an error while processing your request. Sorry about that!"


def refusal_reply(
    api: Api, refusal: Refusal, *, request_id: str, headers: tuple[tuple[str, str], ...] = ()
) -> Reply:
    """Render a refusal in the error shape of its API."""
    body = refusal.anthropic_body(request_id) if api == "anthropic" else refusal.openai_body()
    return json_reply(api, body, status=refusal.status, headers=headers)


def error_reply(api: Api, fault: Fault, *, request_id: str) -> Reply:
    """Render a fault that takes the place of an answer."""
    if fault.kind == "html":
        page = f"<html><head><title>{fault.status} Bad Gateway</title></head></html>\r\n".encode()
        return Reply(api, fault.status, "text/html", (page,))
    refusal = _spent(api) if fault.kind == "spend_limit" else _refusal(api, fault)
    return refusal_reply(api, refusal, request_id=request_id, headers=_advice(fault))


def error_event(api: Api, *, message: str | None = None) -> bytes:
    """Render the event by which a service says within a stream that it fails."""
    if api == "anthropic":
        error = {"type": "overloaded_error", "message": message or "Overloaded"}
        return sse({"type": "error", "error": error}, event="error")
    body = Refusal("fault", message or _SERVER_OPENAI, type="server_error").openai_body()
    return sse(body)


def _refusal(api: Api, fault: Fault) -> Refusal:
    if api == "anthropic":
        fallback = ("api_error", "Internal server error")
        if fault.status < _SERVER:
            fallback = ("invalid_request_error", f"status {fault.status}")
        kind, message = _ANTHROPIC.get(fault.status, fallback)
        return Refusal("fault", fault.message or message, fault.status, kind)
    status = _UNAVAILABLE if fault.status == _OVERLOADED else fault.status
    known = _OPENAI.get(status)
    if known is None and status >= _SERVER:
        known = ("server_error", _SERVER_OPENAI, None)
    kind, message, code = known or ("invalid_request_error", f"status {status}", None)
    return Refusal("fault", fault.message or message, status, kind, code=code)


def _spent(api: Api) -> Refusal:
    if api == "anthropic":
        return Refusal("fault", _SPENT_ANTHROPIC, _TOO_MANY, "rate_limit_error")
    kind = "insufficient_quota"
    return Refusal("fault", _SPENT_OPENAI, _TOO_MANY, kind, code=kind)


def _advice(fault: Fault) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if fault.retry_after is not None:
        headers.append(("Retry-After", f"{fault.retry_after}"))
    if fault.retry_after_ms is not None:
        headers.append(("retry-after-ms", f"{fault.retry_after_ms}"))
    if fault.should_retry is not None:
        headers.append(("x-should-retry", "true" if fault.should_retry else "false"))
    return tuple(headers)
