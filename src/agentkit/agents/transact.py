"""A transactional call: it is made between two appends of its run, because it is one itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentkit.agents.decide import ends_tenure, open_turn
from agentkit.agents.spec import AgentSpec
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import InvalidSpec, TransactionOver
from agentkit.core.contracts.ports import JournalPort, ToolThreads
from agentkit.core.contracts.transactions import Transaction, can_transact
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.working import WorkingJournal
from agentkit.tools import Tool, ToolContext
from agentkit.tools.outcome import Ended, store_fault

__all__ = ["TransactionalCall", "check_store"]


def check_store(port: JournalPort, transactional: Sequence[str]) -> None:
    """Refuse to begin where a tool needs what the store does not have.

    Args:
        port: the run's store.
        transactional: names of the tools that need transactions of it.

    Raises:
        InvalidSpec: the store has none.
    """
    if transactional and can_transact(port) is None:
        names = ", ".join(transactional)
        raise InvalidSpec(
            f"{names}: transactional=True needs a store with transactions, and {port.location} has "
            "none; use SQLite (sqlite:///runs.db) or Postgres, or make the tool idempotent instead"
        )


class TransactionalCall:
    """One call whose intent is durable.

    Args:
        tool, arguments, context: what to call, with what.
        started: the intent.
        threads: where it runs.
        check: raises where the drive may not act any more.
        judge: the outcome that an end of the tool means.
        leave: called when nothing more is to be heard of the tool.
    """

    def __init__(
        self,
        tool: Tool,
        arguments: Mapping[str, object],
        context: ToolContext,
        *,
        started: e.ToolStarted,
        threads: ToolThreads,
        check: Callable[[], None],
        judge: Callable[[Ended], e.ToolFinished | None],
        leave: Callable[[], object],
    ) -> None:
        self.index = started.index
        self._tool = tool
        self._context = context
        self._given = dict(arguments)
        if tool.signature.context:
            self._given[tool.signature.context] = context
        self._started = started
        self._threads = threads
        self._check = check
        self._judge = judge
        self._leave = leave

    async def make(
        self,
        journal: WorkingJournal,
        build: Callable[[RunState, e.ToolFinished], Sequence[e.Body]],
        *,
        spec: AgentSpec,
    ) -> tuple[list[e.Entry], e.ToolFinished | None]:
        """Make the call, and append what `build` makes of its outcome in the same transaction.

        Returns the durable entries. Where there are none the call has had no effect: the outcome
        beside them is still to be recorded, and is `None` where the call was not to be made.

        Raises:
            StoreError, RunError: the run cannot go on here; the call is settled by whoever does.
        """
        failed: list[e.ToolFinished] = []
        faults: list[BaseException] = []

        def conclude(state: RunState, ended: Ended) -> Sequence[e.Body]:
            fault = store_fault(ended.error, state.run_id)
            finished = self._judge(ended) if fault is None else None
            if fault is not None:
                faults.append(fault)
            elif finished is not None and finished.outcome == "ok":
                return build(state, finished)
            elif finished is not None:
                failed.append(finished)
            return ()

        try:
            entries = await journal.transact(
                self._act,
                conclude,
                wanted=lambda state: self._is_open(state, spec),
                lane=spec.lane,
                release=ends_tenure,
                threads=self._threads,
                timeout_seconds=self._tool.timeout,
            )
        except TransactionOver as exc:
            entries = []
            conclude(journal.state, Ended(error=exc))
        finally:
            self._leave()
        if faults:
            raise faults[0]
        return entries, failed[0] if failed else None

    def _act(self, transaction: Transaction) -> Ended:
        """In the tool's thread."""
        try:
            self._check()
            given = {**self._given, self._tool.signature.transaction: transaction}
            return Ended(value=self._tool.function(**given))
        except BaseException as exc:  # noqa: BLE001 - in a thread even SystemExit is the tool's
            return Ended(error=exc)

    def _is_open(self, state: RunState, spec: AgentSpec) -> bool:
        """Whether nobody has settled the call or ended the run meanwhile."""
        turn = open_turn(state, spec)
        if turn is None or turn.answer.turn != self._started.turn:
            return False
        call = turn.calls[self.index]
        ended = state.end is not None or state.stopping
        return not ended and call.outcome is None and call.attempt == self._started.attempt
