"""What persons are asked, over all the runs of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from agentkit.agents.opening import takes_url
from agentkit.core.contracts.errors import AgentkitError, RunNotFound
from agentkit.core.contracts.heads import RunStatus, RunSummary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Question, Scope
from agentkit.state.journal.detail import Detail
from agentkit.state.journal.journal import load_known
from agentkit.state.upkeep.selecting import LIST_RUNS, OF_ONE_RUN, each_scope

__all__ = ["Inbox", "OpenQuestion", "Unreadable", "open_questions"]


class OpenQuestion(NamedTuple):
    """A question that nobody has decided, and whose it is.

    Args:
        scope: key of the run's scope, see `Scope.of_key`.
        run: the run.
        agent: its agent.
        status: of the run: `suspended`, `parked`, or `running` while other calls are under way.
        started_at: when the run began, in ms since the Unix epoch.
        question: the question.
    """

    scope: str
    run: str
    agent: str
    status: RunStatus
    started_at: int
    question: Question


class Unreadable(NamedTuple):
    """A run that may ask something and cannot be read."""

    scope: str
    run: str
    error: AgentkitError


class Inbox(NamedTuple):
    """The open questions, those with the next deadline first, then those of the oldest run; and the
    runs of which nobody knows.
    """

    questions: list[OpenQuestion]
    unreadable: list[Unreadable]


@takes_url
async def open_questions(
    port: JournalPort, *, every_scope: bool = False, tenant: str | None = None
) -> Inbox:
    """Whatever waits for a person. Nothing is changed.

    Args:
        port: the store, or its URL, looking at the scope whose runs are meant.
        every_scope: look at the runs of all scopes instead, or of those of one tenant.
        tenant: see above; `None` for all.

    Raises:
        StoreMisused: the store cannot list its runs.
        StoreError: the store failed.
    """
    found, unreadable = [], []
    async for scope, view in _views(port, every_scope=every_scope, tenant=tenant):
        async for run in _listed(view):
            try:
                asked = await _asked(view, run)
            except OF_ONE_RUN as error:
                unreadable.append(Unreadable(scope, run.run, error))
                continue
            summary = run.summary
            found += [
                OpenQuestion(scope, run.run, summary.agent, summary.status, summary.started_at, one)
                for one in asked
            ]
    return Inbox(sorted(found, key=_urgency), unreadable)


async def _views(
    port: JournalPort, *, every_scope: bool, tenant: str | None
) -> AsyncIterator[tuple[str, JournalPort]]:
    if not every_scope:
        yield "", port
        return
    async for key in each_scope(port, tenant=tenant):
        yield key, port.scoped(Scope.of_key(key))


async def _listed(view: JournalPort) -> AsyncIterator[RunSummary]:
    """The runs that may have an open question."""
    for status in ("suspended", "parked", "running"):
        cursor, more = "", True
        while more:
            page, cursor = await view.list_runs(status=status, limit=LIST_RUNS, cursor=cursor)
            for run in page:
                yield run
            more = bool(cursor)


async def _asked(view: JournalPort, run: RunSummary) -> tuple[Question, ...]:
    """Its open questions. Its journal is read only where it has calls under way beside them, which
    the summary does not tell apart.
    """
    try:
        detail = msgspec.json.decode(run.summary.detail, type=Detail)
    except msgspec.MsgspecError:
        return (await load_known(view, run.run)).questions
    if run.summary.status != "running" or not detail.pending:
        return detail.questions
    try:
        return (await load_known(view, run.run)).questions
    except RunNotFound:
        return ()  # deleted since it was listed


def _urgency(one: OpenQuestion) -> tuple[float, int, str, str, int]:
    asked = one.question
    deadline = asked.deadline or float("inf")
    return deadline, one.started_at, one.scope, one.run, int(asked.id[1:])
