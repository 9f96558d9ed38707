"""`Services` (what a run works with) and `RunContext` (which run it is)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.heartbeat import HeartbeatPort
from agentkit.core.contracts.ports import ChancePort, CheckpointPort, ClockPort, ToolThreads
from agentkit.core.contracts.slots import check_id
from agentkit.core.contracts.types import Scope
from agentkit.core.runtime.chance import SystemChance
from agentkit.core.runtime.clock import SystemClock
from agentkit.core.runtime.invoker import Invoker

__all__ = [
    "AUTONOMIES",
    "MAX_RECOVERIES",
    "Autonomy",
    "CheckpointerPort",
    "RunContext",
    "Services",
]

Autonomy: TypeAlias = Literal["auto", "gated", "manual"]
"""Which calls are made without a person, see `RunContext`."""

AUTONOMIES: tuple[Autonomy, ...] = ("auto", "gated", "manual")
"""From the least strict to the strictest."""

MAX_RECOVERIES = 5
"""Takeovers from dead workers without progress, before a run is parked."""


class CheckpointerPort(Protocol):
    """What the runtime needs of a `Checkpointer`: the store behind it."""

    @property
    def port(self) -> CheckpointPort:
        """The store: a full journal store, or anybody's five-method one."""
        ...


@dataclass(frozen=True, kw_only=True)
class Services:
    """What a run is given to work with. Holds no run state; one object serves any number of runs.

    Args:
        invoker: the model; `None`: made from the agent's model string (`anthropic:…`, `openai:…`)
            and the provider's environment variable.
        checkpointer: where runs are kept; `None`: a private store in memory that dies with the
            process (a side-effecting tool then warns once).
        clock: time and sleep.
        chance: random numbers.
        threads: where synchronous tools run; `None`: 64 daemon threads of the process.
        max_recoveries: how often a run may be taken over from a worker that died, without a
            recorded answer or outcome in between, before it is parked. An orderly end (SIGTERM, a
            deploy) does not count.
        heartbeat: what renews leases; `None`: one daemon thread of the process for each store.

    Raises:
        InvalidSpec: a bare model or a bare store was given.
    """

    invoker: Invoker | None = None
    checkpointer: CheckpointerPort | None = None
    clock: ClockPort = field(default_factory=SystemClock)
    chance: ChancePort = field(default_factory=SystemChance)
    threads: ToolThreads | None = None
    heartbeat: HeartbeatPort | None = None
    max_recoveries: int = MAX_RECOVERIES
    _private: dict[str, CheckpointerPort] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.invoker is not None and not hasattr(self.invoker, "retry"):
            kind = type(self.invoker).__name__
            raise InvalidSpec(f"Services: {kind} is no Invoker; write invoker=Invoker(model)")
        if self.checkpointer is not None and not hasattr(self.checkpointer, "port"):
            kind = type(self.checkpointer).__name__
            raise InvalidSpec(
                f"Services: {kind} is no Checkpointer; write checkpointer=Checkpointer(store)"
            )

    def checkpointer_or(self, make: Callable[[], CheckpointerPort]) -> CheckpointerPort:
        """The checkpointer, or a private one of this object, made once."""
        if self.checkpointer is not None:
            return self.checkpointer
        if not self._private:
            self._private["store"] = make()
        return self._private["store"]


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Which run this is, whose it is, and what it works with.

    Args:
        correlation_id: the run id; two contexts with the same id, scope and store are one run.
        scope: whose run it is.
        services: what it works with.
        identity: who asked for it, for tools (`ToolContext.identity`) and the record; where it is
            empty, tools get the one that the run was started with.
        autonomy: which calls wait for a person's approval. `gated`: those whose tool requires it;
            `manual`: also every call of a side-effecting tool; `auto`: those alone whose tool says
            `requires_approval="always"`. A run keeps what it was started with; a later context can
            only be stricter.

    Raises:
        InvalidId: the run id is empty, or it or the identity is longer than 512 characters or
            holds control characters.
        InvalidSpec: there is no such autonomy.
    """

    correlation_id: str
    scope: Scope = field(default_factory=Scope)
    services: Services = field(default_factory=Services)
    identity: str = ""
    autonomy: Autonomy = "gated"

    def __post_init__(self) -> None:
        check_id(self.correlation_id)
        if self.autonomy not in AUTONOMIES:
            known = ", ".join(AUTONOMIES)
            raise InvalidSpec(f"autonomy is one of {known}; not {self.autonomy!r}")
        if self.identity:
            check_id(self.identity, what="identity")
