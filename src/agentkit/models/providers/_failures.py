"""What a provider's refusal means: status and body in, `ModelError` out. Pure.

The table for users is `docs/reference/retries.md`; a test compares it with this file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import FailureKind
from agentkit.core.contracts.types import JSON

__all__ = ["Facts", "kind_of", "may_be_paid", "refused", "retry_after", "should_retry"]

_BY_STATUS: Mapping[int, FailureKind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "server",
    425: "server",
    429: "rate_limited",
    499: "server",
    529: "overloaded",
}

# What an error calls itself, in `type` or `code`: for errors inside an answer, without a status.
_BY_NAME: Mapping[str, FailureKind] = {
    "api_error": "server",
    "authentication_error": "auth",
    "billing_error": "quota",
    "conflict_error": "server",
    "context_length_exceeded": "context_length",
    "insufficient_quota": "quota",
    "invalid_api_key": "auth",
    "invalid_request_error": "invalid_request",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "overloaded_error": "overloaded",
    "permission_error": "auth",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "request_too_large": "invalid_request",
    "server_error": "server",
    "timeout_error": "timeout",
}

# A rate limit's text may point to a billing page: that word counts in a name alone.
_SPENT_NAME = re.compile(r"insufficient_|spend(ing)?_?limit|billing|hard_limit|on_hold")
_SPENT_TEXT = re.compile(
    r"insufficient (quota|funds|balance|credits?)|spend(ing)? limit|billing hard limit"
    r"|credit balance|api usage limits|exceeded your current quota",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[_ -]?(length|window|limit|size)|prompt is too long|maximum context",
    re.IGNORECASE,
)
_PAID_STATUS = frozenset({500, 502, 504})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SHOWN_CHARACTERS = 500

_ADVICE: Mapping[FailureKind, str] = {
    "auth": "Check the API key and what it may use, then resume the run.",
    "quota": "Raise the spend limit or pay the account, then resume the run.",
    "not_found": "Check the model's name and the base URL, then resume the run.",
    "invalid_request": "No retry can mend this request; change what is sent, then resume the run.",
    "context_length": "The transcript is longer than the model reads; compact it, then resume.",
}


class Facts:
    """What an error body says about itself, whichever provider wrote it.

    Attributes:
        names: its `type` and codes.
        message: its text for people.
        code: a number that it gives as its code (some gateways put the HTTP status there).
    """

    def __init__(self, body: JSON) -> None:
        error = body.get("error", body) if isinstance(body, dict) else body
        fields = error if isinstance(error, dict) else {}
        details = fields.get("details")
        nested = details.get("error_code") if isinstance(details, dict) else None
        found = [fields.get("code"), nested, fields.get("type")]
        self.names = tuple(name for name in found if isinstance(name, str))
        code = fields.get("code")
        self.code = code if isinstance(code, int) and not isinstance(code, bool) else None
        message = fields.get("message") if fields else error
        self.message = message if isinstance(message, str) else ""


def kind_of(status: int | None, facts: Facts) -> FailureKind:
    """The kind of failure behind a status (`None`: inside an answer) and what the body says."""
    names = " ".join(facts.names)
    spent = _SPENT_NAME.search(names) or _SPENT_TEXT.search(facts.message)
    if spent and status in {None, 400, 402, 403, 429}:
        return "quota"
    if status in {None, 400, 413, 422} and _TOO_LONG.search(f"{names} {facts.message}"):
        return "context_length"
    if status is None:
        named = next((_BY_NAME[name] for name in facts.names if name in _BY_NAME), None)
        if named is None and facts.code is not None and facts.code >= HTTPStatus.BAD_REQUEST:
            return kind_of(facts.code, facts)
        return named or "server"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "overloaded" if "overloaded_error" in facts.names else "server"
    return "invalid_request"


def may_be_paid(status: int | None) -> bool:
    """Whether the request may have been worked on (and billed) although it failed like this.

    500, 502 and 504 say nothing about how far it got; the other refusals were decided before.
    `None` is an error inside an answer that had begun.
    """
    return status is None or status in _PAID_STATUS


def refused(
    provider: str, status: int | None, body: JSON, headers: Mapping[str, str]
) -> ModelError:
    """The error for a refusal, from an HTTP status or inside an answer.

    Args:
        provider: who refused, for the message.
        status: the HTTP status; `None` inside an answer.
        body: the decoded body, or its text where it was not JSON.
        headers: the response's, names in lower case or case-insensitive; empty inside an answer.
    """
    facts = Facts(body)
    kind = kind_of(status, facts)
    said = _shown(facts.message) or "no reason given"
    stop = "" if said.endswith((".", "!", "?", "…")) else "."
    how = "an error inside its answer" if status is None else f"status {status}"
    advice = f" {_ADVICE[kind]}" if kind in _ADVICE else ""
    return ModelError(
        f"{provider} answered with {how} ({kind}): {said}{stop}{advice}",
        kind=kind,
        status=status,
        retry_after_seconds=retry_after(headers),
        may_be_paid=may_be_paid(status),
        should_retry=should_retry(headers),
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """What the response asks us to wait, in seconds; `None` if nothing usable.

    `retry-after-ms` goes first, then `retry-after` as a number, then as a date. A date is taken
    relative to the response's own `date`, so that our clock does not matter; without one it counts
    for nothing.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
        seconds = (until - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
    except (TypeError, ValueError):
        return None
    return max(0.0, seconds)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """What `x-should-retry` says, if it is there and one of its two words."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def _shown(text: str) -> str:
    """A provider's text as one line of bounded length; markup of an HTML page is left out."""
    if text.lstrip()[:9].lower() == "<!doctype" or "<html" in text[:1000].lower():
        text = "a page of HTML instead of JSON"
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
