"""Where a run takes place: its context, its store as a full journal, its model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import cached_property

from agentkit.core.contracts.errors import InvalidSpec, RunInterrupted
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.ports import CheckpointPort, JournalPort
from agentkit.core.runtime import Invoker, RunContext, SystemChance
from agentkit.core.runtime.context import Autonomy
from agentkit.state.checkpoints import Checkpointer
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.checkpoints.shim import ShimJournal
from agentkit.state.journal.drives import RunKey

__all__ = ["STORE_VARIABLE", "Setting", "VolatileStoreWarning", "settle"]

STORE_VARIABLE = "AGENTKIT_STORE_URL"


class VolatileStoreWarning(UserWarning):
    """A side-effecting tool runs on a store that dies with the process."""


_warned: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A run's surroundings.

    Args:
        context: which run.
        port: the store, looking at the run's scope.
        model: the agent's model string, or the model itself.
        volatile: the store is private and in memory.
        owned: the store was opened for this call and is closed with it.
    """

    context: RunContext
    port: JournalPort
    model: str | LLMPort
    volatile: bool = False
    owned: JournalPort | None = None

    @property
    def key(self) -> RunKey:
        """What identifies the run in this process."""
        context = self.context
        return (self.port.location, context.scope.key, context.correlation_id)

    @cached_property
    def invoker(self) -> Invoker:
        """The model: the one given, or the one that the agent's model string names."""
        given = self.context.services.invoker
        if given is not None:
            return given
        if not isinstance(self.model, str):
            return Invoker(self.model)
        from agentkit.models.providers.frontiers import from_string

        return Invoker(from_string(self.model))

    def interrupted(self) -> RunInterrupted:
        """That this worker was told to stop, and has left the run."""
        run_id = self.context.correlation_id
        message = f"run {run_id!r}: this worker was told to stop and has left it; it is resumable"
        return RunInterrupted(message, run_id=run_id)

    def warn_if_volatile(self, side_effecting: Sequence[str]) -> None:
        """Warn once per tool set when effects would be forgotten with the process."""
        names = ", ".join(side_effecting)
        if self.volatile and names and names not in _warned:
            _warned.add(names)
            text = (
                f"{names} acts on the world, but the run is kept in memory only: after a crash "
                "nobody knows what was done. Give Services a checkpointer, or a store URL."
            )
            warnings.warn(text, VolatileStoreWarning, stacklevel=4)

    async def aclose(self) -> None:
        """Close what was opened for this call alone."""
        if self.owned is not None:
            await self.owned.aclose()


def settle(
    model: str | LLMPort,
    ctx: RunContext | None,
    *,
    run_id: str | None,
    store: str | None,
    autonomy: Autonomy | None = None,
    identity: str | None = None,
) -> Setting:
    """Complete what the caller gave; without a context or a run id the run gets a random one.

    Raises:
        InvalidSpec: beside a context another run id, a store, an autonomy or an identity was
            given; or the context is none, or the autonomy.
        InvalidStoreUrl: the store URL is malformed or unknown.
    """
    beside = {"store": store, "autonomy": autonomy, "identity": identity}
    context = _checked_context(ctx, run_id=run_id, beside=beside) or RunContext(
        correlation_id=SystemChance().token() if run_id is None else run_id,
        identity=identity or "",
        autonomy=autonomy or "gated",
    )
    services = context.services
    url = os.environ.get(STORE_VARIABLE) or None if store is None else store
    if services.checkpointer is None and url is not None:
        from agentkit.state.checkpoints.adapters import open_store

        opened = open_store(url)
        services = replaced(services, checkpointer=Checkpointer(port=opened))
        context = replaced(context, services=services)
        return Setting(
            context=context, port=opened.scoped(context.scope), model=model, owned=opened
        )
    checkpointer = services.checkpointer_or(lambda: Checkpointer(port=InMemoryCheckpointStore()))
    return Setting(
        context=context,
        port=_journal(checkpointer.port).scoped(context.scope),
        model=model,
        volatile=services.checkpointer is None,
    )


def _checked_context(
    ctx: RunContext | None, *, run_id: str | None, beside: Mapping[str, str | None]
) -> RunContext | None:
    """The context, where one was given, which then says everything."""
    given: object = ctx
    if not (given is None or isinstance(given, RunContext)):
        raise InvalidSpec(f"{ctx!r} is no RunContext; for a run's id alone write run_id=…")
    if ctx is None:
        return None
    if run_id not in {None, ctx.correlation_id}:
        message = f"run {run_id!r} was given the context of another run"
        raise InvalidSpec(f"{message}: {ctx.correlation_id!r}")
    for what, value in beside.items():
        if value is not None:
            message = f"run {ctx.correlation_id!r}: give either a context or {what}=…, not both"
            raise InvalidSpec(f"{message}; the context has its own")
    return ctx


def _journal(port: CheckpointPort) -> JournalPort:
    """The full port; a five-method one goes through the shim."""
    if isinstance(port, JournalPort):
        return port
    return ShimJournal.over(port)
