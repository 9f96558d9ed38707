"""`Agent`: a definition that any number of runs go through at once. It holds no run state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from agentkit.agents.admitting import Wanted
from agentkit.agents.answering import decide
from agentkit.agents.attention import Attention, Later, Stopped
from agentkit.agents.background import run_in_background
from agentkit.agents.checking import (
    CarryOn,
    Start,
    checked_start,
    warn_if_changed,
)
from agentkit.agents.claim import Claimed, claim
from agentkit.agents.cognition import Cognition, SingleCallCognition
from agentkit.agents.drive import Drive
from agentkit.agents.outcome import final_events, result_or_raise
from agentkit.agents.registry import ToolRegistry
from agentkit.agents.result import AgentEvent, AgentResult
from agentkit.agents.setting import Setting, settle
from agentkit.agents.spec import AgentSpec, make_spec
from agentkit.agents.stream import RunStream
from agentkit.agents.transact import check_store
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.model import LLMPort
from agentkit.core.contracts.types import JSON, Decision
from agentkit.core.runtime import RunContext
from agentkit.core.runtime.context import Autonomy
from agentkit.state.journal.drives import DriveRecord
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.lease import LEASE_SECONDS, heartbeat_for
from agentkit.state.journal.owner import owner_id
from agentkit.tools.threads import default_threads

__all__ = ["Agent"]


class Agent:
    """An agent's definition.

    Args:
        name: names the agent's slot in a run's journal; 1 to 512 characters.
        model: `anthropic:…`, `openai:…`, or a bare name for the invoker's model; or a model
            itself (an `LLMPort`, such as `FakeLLM(…)`), used where `Services` has no invoker.
        prompt: the system prompt.
        cognition: which decisions its loop makes; by default one call of the model.

    Raises:
        InvalidId, InvalidSpec: the definition is not usable as written.

    Attributes:
        reference: where the definition is (`module:variable`), recorded with each new run; the
            command line sets it.
    """

    def __init__(
        self,
        name: str,
        model: str | LLMPort = "",
        prompt: str = "",
        *,
        cognition: Cognition | None = None,
    ) -> None:
        self.name = name
        if not isinstance(model, str | LLMPort) or isinstance(model, type):
            raise InvalidSpec(f"agent {name!r}: {model!r} is neither a model's name nor a model")
        self.model = model if isinstance(model, str) else model.origin
        self.llm = None if isinstance(model, str) else model
        self.prompt = prompt
        self.reference = ""
        if isinstance(cognition, type):
            raise InvalidSpec(f"agent {name!r}: give an object: cognition={cognition.__name__}(…)")
        self.cognition: Cognition = cognition or SingleCallCognition()
        self._registry = ToolRegistry(self.cognition.tools)
        self._made: AgentSpec | None = None
        make_spec(name=name, model=self.model, system=prompt, tools=(), max_iterations=1)

    async def run(
        self,
        task: str,
        ctx: RunContext | None = None,
        *,
        run_id: str | None = None,
        store: str | None = None,
        after: str | None = None,
        autonomy: Autonomy | None = None,
        identity: str | None = None,
        wait_seconds: float = 0.0,
    ) -> AgentResult:
        """Start the run, or carry it on where its last worker stopped, and return its result.

        The same id and task again give the stored result of a finished run without calling
        anything.

        Args:
            task: what to do.
            ctx: which run, and what it works with; or, without one:
            run_id: the run's id (random when left out), and
            store: a store URL; by default `AGENTKIT_STORE_URL`, else a private store in memory.
            after: a run of this agent that has ended: the new run carries its conversation on,
                and nothing of it is done or paid again.
            autonomy: which of its calls wait for a person's approval, and
            identity: who asks for it; both as in `RunContext`.
            wait_seconds: how long to wait for another worker that holds the run.

        Raises:
            RunIdReused: the id belongs to another task, agent or `after`.
            RunNotFound, VersionNotFound: there is no run `after`, or its entries are gone.
            RunUnfinished: the run `after` has not ended.
            RunSuspended: the run waits for decisions; use `resume`.
            RunInUse: another worker holds the run.
            RunParked: the run stopped at something to mend (credentials, quota, …).
            RunFailed: the run ended in a way that no retry can mend.
            LeaseLost: another worker took the run over while this one was at it.
            RunInterrupted: this worker was told to stop, see `drain`; the run is resumable.
            StoreError: the store failed; the run is resumable.
        """
        model = self.llm or self.model
        setting = settle(
            model, ctx, run_id=run_id, store=store, autonomy=autonomy, identity=identity
        )
        start = checked_start(task, after, run_id=setting.context.correlation_id)
        return await result_or_raise(self._stream(setting, start, wait_seconds, deltas=False))

    def run_sync(
        self,
        task: str,
        ctx: RunContext | None = None,
        *,
        run_id: str | None = None,
        store: str | None = None,
        after: str | None = None,
        autonomy: Autonomy | None = None,
        identity: str | None = None,
        wait_seconds: float = 0.0,
    ) -> AgentResult:
        """`run` for code without an event loop; all such calls share one background loop.

        Args, result and errors are those of `run`.

        Raises:
            StoreMisused: called inside a running event loop, which it would block.
        """
        return run_in_background(
            self.run(
                task,
                ctx,
                run_id=run_id,
                store=store,
                after=after,
                autonomy=autonomy,
                identity=identity,
                wait_seconds=wait_seconds,
            )
        )

    def stream(
        self, task: str, ctx: RunContext, *, after: str | None = None, wait_seconds: float = 0.0
    ) -> RunStream:
        """Like `run`, telling what happens; the last event is `final` with the result.

        Args:
            task: what to do.
            ctx: which run, and what it works with.
            after: as for `run`.
            wait_seconds: how long to wait for another worker that holds the run.

        Returns:
            A stream for `async for`; nothing happens before it is first read.

        Raises:
            InvalidSpec: the task is empty. Others come from the stream, as for `run`; but a run
                that is parked or failed ends with a `final` event that says so.
        """
        setting = settle(self.llm or self.model, ctx, run_id=None, store=None)
        start = checked_start(task, after, run_id=setting.context.correlation_id)
        return self._stream(setting, start, wait_seconds, deltas=True)

    async def resume(
        self,
        run_id: str,
        decisions: Mapping[str, Decision | JSON] | None = None,
        ctx: RunContext | None = None,
        *,
        store: str | None = None,
        wait_seconds: float = LEASE_SECONDS,
    ) -> AgentResult:
        """Carry a run on, whatever its last worker left: interrupted, suspended or parked.

        Decisions are durable before anything else happens. Those that are given are applied; a
        run whose questions are not all decided stays suspended with the rest. A paused run takes
        decisions and stays paused; `unpause` lets it go on.

        Args:
            run_id: the run.
            decisions: by question id; see `Decision`. Equal ones may be sent again.
            ctx: as for `run`; its `correlation_id` must be `run_id`.
            store: as for `run`.
            wait_seconds: how long to wait for another worker that holds the run.

        Raises:
            RunNotFound: there is no such run.
            InvalidDecision: decisions do not fit the open questions; nothing was done.
            Others as for `run`.
        """
        setting = settle(self.llm or self.model, ctx, run_id=run_id, store=store)
        stream = self._stream(setting, None, wait_seconds, deltas=False, decisions=decisions)
        return await result_or_raise(stream)

    def resume_sync(
        self,
        run_id: str,
        decisions: Mapping[str, Decision | JSON] | None = None,
        ctx: RunContext | None = None,
        *,
        store: str | None = None,
        wait_seconds: float = LEASE_SECONDS,
    ) -> AgentResult:
        """`resume` as `run_sync` is `run`: args, result and errors are those of the two."""
        return run_in_background(
            self.resume(run_id, decisions, ctx, store=store, wait_seconds=wait_seconds)
        )

    def resume_stream(
        self,
        run_id: str,
        decisions: Mapping[str, Decision | JSON] | None,
        ctx: RunContext,
        *,
        wait_seconds: float = LEASE_SECONDS,
    ) -> RunStream:
        """Like `resume`, telling what happens; decisions are recorded when it is first read.

        Args:
            run_id: the run.
            decisions: as for `resume`.
            ctx: which run, and what it works with; its `correlation_id` must be `run_id`.
            wait_seconds: how long to wait for another worker that holds the run.

        Returns:
            A stream for `async for`; errors come from it, as for `resume`.
        """
        setting = settle(self.llm or self.model, ctx, run_id=run_id, store=None)
        return self._stream(setting, None, wait_seconds, deltas=True, decisions=decisions)

    async def carry_on(
        self, ctx: RunContext, *, on_claimed: Callable[[Lease], None] = lambda _: None
    ) -> AgentResult:
        """Do for a run what it wants of a worker now, be it to begin it: see `Worker`.

        Unlike `resume` it leaves a run that is parked as it is, does not wait for a lease that
        somebody else holds, and returns the result of a run that is parked or has failed.

        Args:
            ctx: which run, and what it works with.
            on_claimed: called with the lease once the run is this worker's.

        Raises: as `resume`.
        """
        setting = settle(self.llm or self.model, ctx, run_id=None, store=None)
        return await self._stream(setting, CarryOn(on_claimed), 0.0, deltas=False).result()

    def _spec(self) -> AgentSpec:
        """The definition with its tools' schemas, which are made at the first run."""
        if self._made is None:
            self._made = make_spec(
                name=self.name,
                model=self.model,
                system=self.prompt,
                tools=self._registry.definitions,
                max_iterations=self.cognition.max_iterations,
                reference=self.reference,
            )
        return self._made

    def _stream(
        self,
        setting: Setting,
        start: Start | CarryOn | None,
        wait_seconds: float,
        *,
        deltas: bool,
        decisions: Mapping[str, Decision | JSON] | None = None,
    ) -> RunStream:
        setting.warn_if_volatile(self._registry.side_effecting())
        return RunStream(
            setting.key,
            lambda record: self._events(
                setting, start, wait_seconds, record, deltas=deltas, decisions=decisions
            ),
        )

    async def _events(
        self,
        setting: Setting,
        start: Start | CarryOn | None,
        wait_seconds: float,
        record: DriveRecord,
        *,
        deltas: bool,
        decisions: Mapping[str, Decision | JSON] | None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """The one way in which a run is started or continued."""
        async with aclosing(setting):
            repeated: tuple[str, ...] = ()
            if decisions:  # without any the run is claimed first: to read it may be what kills
                decided, repeated = await decide(
                    setting, decisions, spec=self._spec(), registry=self._registry
                )
                if decided.paused:  # who decides does not wake what somebody has stopped
                    for event in final_events(decided, repeated=repeated):
                        yield event
                    return
            news, attention = Later(), Attention()
            record.drain = attention.drain
            claimed = await self._claim(
                setting, start, wait_seconds, record, attention=attention, news=news
            )
            if isinstance(claimed, RunState):
                state = claimed
            else:
                if isinstance(start, CarryOn):
                    start.claimed(claimed.tenure.lease)
                drive = self._drive(setting, claimed, attention, deltas=deltas)
                news.call = drive.listener.hear
                async with aclosing(drive.events()) as events:
                    async for event in events:
                        claimed.tenure.idle()
                        yield event
                state = drive.state
                if drive.listener.left:
                    raise setting.interrupted()
            for event in final_events(state, repeated=repeated):
                yield event

    async def _claim(
        self,
        setting: Setting,
        start: Start | CarryOn | None,
        wait_seconds: float,
        record: DriveRecord,
        *,
        attention: Attention,
        news: Later,
    ) -> Claimed | RunState:
        spec = self._spec()

        def prepare(state: RunState) -> None:
            check_store(setting.port, self._registry.transactional())
            warn_if_changed(state, spec)
            _ = setting.invoker

        wanted = Wanted(*start) if isinstance(start, Start) else Wanted(unparks=start is None)
        request = partial(
            claim,
            setting.port,
            setting.context,
            spec,
            wanted,
            owner=owner_id(record.drive_id),
            wait_seconds=wait_seconds,
            heartbeat=setting.context.services.heartbeat or heartbeat_for(setting.port),
            on_news=news,
            prepare=prepare,
        )
        try:
            return await attention.wait(request, until=lambda: attention.draining)
        except Stopped:
            raise setting.interrupted() from None

    def _drive(
        self, setting: Setting, claimed: Claimed, attention: Attention, *, deltas: bool
    ) -> Drive:
        context = setting.context
        identity = context.identity or claimed.journal.state.identity
        return Drive(
            claimed,
            spec=self._spec(),
            registry=self._registry,
            context=replace(context, identity=identity),
            attention=attention,
            invoker=setting.invoker,
            threads=context.services.threads or default_threads(),
            stream=deltas,
        )
