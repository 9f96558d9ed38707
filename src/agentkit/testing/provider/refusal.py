"""What the provider says no with: one value, two error shapes."""

from __future__ import annotations

from dataclasses import dataclass

from agentkit.testing.provider.shapes import Body

__all__ = ["Refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered.

    Args:
        rule: our own stable name for the broken rule, such as ``dangling_call``; it never goes
            over the wire.
        message: what the service says, in its own words where they are known.
        status: HTTP status.
        type: the service's class of error.
        param: the offending parameter (Chat Completions alone has it).
        code: the machine-readable code (Chat Completions alone has it).
    """

    rule: str
    message: str
    status: int = 400
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None

    def anthropic_body(self, request_id: str) -> Body:
        """Return the error object of the Messages API."""
        return {
            "type": "error",
            "error": {"type": self.type, "message": self.message},
            "request_id": request_id,
        }

    def openai_body(self) -> Body:
        """Return the error object of the Chat Completions API."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }
