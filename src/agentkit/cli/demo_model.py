"""The model of `agentkit demo`: the strict fake provider behind a real SDK, or a real provider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from agentkit.core.contracts.errors import MissingExtra
from agentkit.core.contracts.types import JSON
from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider, UsageSpec

__all__ = ["DemoModel", "demo_model"]

_SDKS = {"openai": "openai:gpt-5.1", "anthropic": "anthropic:claude-sonnet-4-6"}
"""The first that is installed is used; the first of these is imported faster, in each worker."""

_CUT_TURN = 1
"""The answer that is held back half-way: the second one."""

_TURNS = (
    Answer(
        text="I look the bulbs up first.",
        tool_calls=[
            CallSpec("search_catalogue", {"query": "tulip bulbs"}),
            CallSpec("check_stock", {"item": "tulip bulbs"}),
        ],
        usage=UsageSpec(210, 44),
    ),
    Answer(
        text="There are enough of them: I order twenty.",
        tool_calls=[CallSpec("place_order", {"item": "tulip bulbs", "quantity": 20})],
        usage=UsageSpec(318, 36),
    ),
    Answer(
        text="Now I tell Ada.",
        tool_calls=[
            CallSpec(
                "send_email",
                {"to": "ada@example.org", "text": "20 tulip bulbs are ordered: order A-1."},
            )
        ],
        usage=UsageSpec(402, 41),
    ),
    Answer(
        text="20 tulip bulbs are ordered for Ada (order A-1), and she knows by mail.",
        usage=UsageSpec(471, 23),
    ),
)
"""What the fake provider answers."""


class DemoModel:
    """What the workers talk to.

    Args:
        name: the model string that the workers are given.
        provider: the fake provider; `None` where the model is a real one.
    """

    def __init__(self, name: str, provider: StrictProvider | None) -> None:
        self.name = name
        self.provider = provider

    @property
    def shown(self) -> str:
        """The model for people."""
        if self.provider is None:
            return self.name
        return f"{self.name}, played over HTTP by a strict fake provider at {self.provider.url}"

    @property
    def environment(self) -> dict[str, str]:
        """What a worker's environment needs beside the user's own."""
        if self.provider is None:
            return {}
        return {
            "ANTHROPIC_API_KEY": self.provider.api_key,
            "ANTHROPIC_BASE_URL": self.provider.anthropic_url,
            "OPENAI_API_KEY": self.provider.api_key,
            "OPENAI_BASE_URL": self.provider.openai_url,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    @property
    def bought(self) -> list[dict[str, JSON]]:
        """One line per answer that the provider sold, as the invariant checker reads them."""
        calls = self.provider.calls if self.provider is not None else []
        return [{"kind": "bought", "turn": call.turn + 1} for call in calls if call.bought]

    @property
    def refused(self) -> list[str]:
        """The requests that the provider refused."""
        calls = self.provider.refusals if self.provider is not None else []
        return [str(call.refusal) for call in calls]

    @property
    def holding(self) -> bool:
        """Whether an answer is paid for and held back half-way."""
        calls = self.provider.calls if self.provider is not None else []
        return any(call.bought and call.fault == "stall_stream" for call in calls)


@contextmanager
def demo_model(name: str | None) -> Iterator[DemoModel]:
    """The real model `name`, or the fake provider behind whichever SDK is installed.

    Raises:
        MissingExtra: no SDK is installed.
        MissingKey, InvalidSpec: `name` cannot be used.
    """
    if name is not None:
        from agentkit.models.providers.frontiers import from_string

        from_string(name)
        yield DemoModel(name, None)
        return
    installed = [model for sdk, model in _SDKS.items() if find_spec(sdk) is not None]
    if not installed:
        raise MissingExtra(
            "the demo talks to its model through a provider's SDK, and none is installed: "
            'pip install "arc-agentkit[anthropic]" (or [openai])'
        )
    with StrictProvider(_TURNS) as provider:
        provider.fail_next(Fault.stall_stream(turn=_CUT_TURN))
        yield DemoModel(installed[0], provider)
