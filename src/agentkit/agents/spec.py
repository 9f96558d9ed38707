"""What an agent is, as plain data: the part of its definition that decisions are made from."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.slots import agent_lane, check_id
from agentkit.core.contracts.types import ToolDefinition

__all__ = ["DEFAULT_MAX_ITERATIONS", "AgentSpec", "bare_model", "make_spec"]

DEFAULT_MAX_ITERATIONS = 50
"""Model answers of one run, over its whole life, before it is parked."""


class AgentSpec(msgspec.Struct, frozen=True):
    """A definition, ready to be recorded.

    Args:
        name: the agent's name; names its lane.
        model: the model string as the agent was given it.
        system: the system prompt.
        tools: the tools as the model is told of them.
        max_iterations: model answers before the run is parked.
        fingerprint: identifies model, prompt and tools.
        lane: the agent's lane in a run's journal.
        reference: where the definition is, `module:variable`, if that is known.
    """

    name: str
    model: str
    system: str
    tools: tuple[ToolDefinition, ...]
    max_iterations: int
    fingerprint: str
    lane: str
    reference: str = ""


def make_spec(
    *,
    name: str,
    model: str,
    system: str,
    tools: tuple[ToolDefinition, ...],
    max_iterations: int,
    reference: str = "",
) -> AgentSpec:
    """Check and fingerprint a definition.

    Raises:
        InvalidId: the name cannot name an agent.
        InvalidSpec: `max_iterations` is not positive, or a text is none.
    """
    check_id(name, what="agent name")
    if max_iterations < 1:
        message = f"agent {name!r}: max_iterations must be at least 1, not {max_iterations}"
        raise InvalidSpec(message)
    try:
        definition = msgspec.json.encode([model, system, tools], order="sorted")
    except UnicodeEncodeError as exc:
        message = f"agent {name!r}: its prompt, model or tools hold lone surrogates ({exc})"
        raise InvalidSpec(message) from exc
    fingerprint = blake2b(definition, digest_size=8).hexdigest()
    lane = agent_lane(name)
    return AgentSpec(name, model, system, tools, max_iterations, fingerprint, lane, reference)


def bare_model(model: str) -> str:
    """The model's name without `provider:` in front."""
    prefix, colon, rest = model.partition(":")
    return rest if colon and prefix in ("anthropic", "openai") else model
