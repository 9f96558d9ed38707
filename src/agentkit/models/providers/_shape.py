"""Reading fields of answers that may be anything, and the errors for answers that are not."""

from __future__ import annotations

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.types import JSON, JSONObject

__all__ = ["misshapen", "number", "table", "text_of", "truncated"]


def misshapen(provider: str, what: str) -> ModelError:
    """The error for an answer of unexpected form: retried, since proxies cause most of them."""
    return ModelError(
        f"{provider} sent {what}: this is not its API. If the retries do not mend it, check the "
        "base URL and what stands between.",
        kind="server",
        may_be_paid=True,
    )


def truncated(provider: str) -> ModelError:
    """The error for an answer that ended without a terminal stop reason."""
    return ModelError(
        f"{provider} ended its answer without a stop reason; a cut answer is never taken for one.",
        kind="truncated",
        may_be_paid=True,
    )


def table(value: JSON, provider: str, what: str) -> JSONObject:
    """The value, if it is an object.

    Raises:
        ModelError: it is not.
    """
    if not isinstance(value, dict):
        raise misshapen(provider, f"{what} that is not a JSON object")
    return value


def text_of(fields: JSONObject, name: str) -> str:
    """A text field; empty where it is missing or something else."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def number(fields: JSONObject, name: str) -> int:
    """A count; zero where it is missing or something else."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
