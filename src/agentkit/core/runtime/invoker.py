"""One attempt at a model, bounded in time and classified. Retrying is decided elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from agentkit.core.contracts.errors import ModelError
from agentkit.core.contracts.model import LLMPort, ModelReply, ModelRequest, TextDelta
from agentkit.core.runtime.retry import RetryPolicy

__all__ = ["MODEL_SECONDS", "Invoker"]

MODEL_SECONDS = 600.0
"""The longest one model attempt may take."""


class Invoker:
    """Puts requests to a model.

    Args:
        llm: the model.
        retry: how failed attempts are tried again (the runtime's loop decides by it).
        timeout_seconds: the longest one attempt may take.
    """

    def __init__(
        self,
        llm: LLMPort,
        *,
        retry: RetryPolicy | None = None,
        timeout_seconds: float = MODEL_SECONDS,
    ) -> None:
        self.llm = llm
        self.retry = retry or RetryPolicy()
        self.timeout_seconds = timeout_seconds

    async def attempt(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        """One attempt: deltas, then exactly one reply.

        Raises:
            ModelError: the attempt failed, ran out of time, or ended without a reply.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout_seconds
        items = self.llm.attempt(request)
        try:
            while True:
                # The timer runs only while an item is awaited, never across a yield, where the
                # consumer's own code runs.
                async with asyncio.timeout_at(deadline):
                    item = await anext(items, None)
                if item is None:
                    message = "the model's stream ended without a reply"
                    raise ModelError(message, kind="truncated", may_be_paid=True)
                yield item
                if isinstance(item, ModelReply):
                    return
        except TimeoutError as exc:
            message = f"the model did not answer within {self.timeout_seconds:g} s"
            raise ModelError(message, kind="timeout", may_be_paid=True) from exc
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()
