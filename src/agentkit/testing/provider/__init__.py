"""A strict fake provider: a real HTTP server that speaks and refuses like the real ones.

It speaks the Messages API and the Chat Completions API, JSON and streams, answers by a script that
looks at the transcript alone, counts what it sells, and fails on demand.

    script = [
        Answer(tool_calls=[CallSpec("add", {"a": 1, "b": 2})]),
        Answer(text="Three."),
    ]
    with StrictProvider(script) as provider:
        client = anthropic.Anthropic(base_url=provider.anthropic_url, api_key=provider.api_key)

As a process of its own: ``python -m agentkit.testing.provider --script FILE``.
"""

from agentkit.testing.provider.faults import Fault, FaultError
from agentkit.testing.provider.ledger import Call, read_log
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.script import (
    Answer,
    CallSpec,
    ProviderRequest,
    ProviderScript,
    ScriptError,
    TurnScript,
    UsageSpec,
)
from agentkit.testing.provider.server import StrictProvider

__all__ = [
    "Answer",
    "Call",
    "CallSpec",
    "Fault",
    "FaultError",
    "ProviderRequest",
    "ProviderScript",
    "Refusal",
    "ScriptError",
    "StrictProvider",
    "TurnScript",
    "UsageSpec",
    "read_log",
]
