"""What an agent is, as plain data: the part of its definition that decisions are made from."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.slots import agent_lane, check_id
from agentkit.core.contracts.types import ToolDefinition

__all__ = ["DEFAULT_MAX_ITERATIONS", "AgentSpec", "asked_model", "make_spec"]

_PROVIDERS = ("anthropic", "openai")

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

    def goes_by(self, name: str) -> bool:
        """Whether a run that was submitted for the agent `name` is for this one: that is its name,
        or its reference.
        """
        return name in {self.name, self.reference}


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


def asked_model(recorded: str, *, origin: str) -> str:
    """The name that a request asks for; empty for the port's own model.

    Args:
        recorded: what the run's start says of the agent's model: `provider:name`, a bare name, or
            the origin of a model that was given as an object.
        origin: of the port that is asked. It may be another one than was recorded, since `Services`
            and the command line may bring a model of their own, and one provider's names mean
            nothing to the other.
    """
    prefix, colon, name = recorded.partition(":")
    if colon and prefix in _PROVIDERS:
        return "" if origin in _PROVIDERS and prefix != origin else name
    return "" if recorded in (origin, "fake") else recorded
