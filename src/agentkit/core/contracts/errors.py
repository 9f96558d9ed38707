"""Every error that agentkit raises, in one tree. The message says what happened and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentkit.core.contracts.model import FailureKind
    from agentkit.core.contracts.types import Question, Usage

__all__ = [
    "AgentkitError",
    "AlreadyDecided",
    "DeadlinePassed",
    "EntryTooLarge",
    "ExportDamaged",
    "HeadMoved",
    "InvalidDecision",
    "InvalidFork",
    "InvalidId",
    "InvalidSpec",
    "InvalidStoreUrl",
    "JournalDamaged",
    "JournalTooNew",
    "LeaseLost",
    "MissingExtra",
    "MissingKey",
    "ModelError",
    "NoteRefused",
    "OutcomeUnknown",
    "QuestionNotFound",
    "ResultNotStorable",
    "RunError",
    "RunExpired",
    "RunFailed",
    "RunIdReused",
    "RunInUse",
    "RunInterrupted",
    "RunLocked",
    "RunNotFound",
    "RunParked",
    "RunSuspended",
    "RunUnfinished",
    "StaleDecision",
    "StatementRefused",
    "StoreDamaged",
    "StoreError",
    "StoreFailedOver",
    "StoreMisused",
    "StoreUnreachable",
    "TransactionOver",
    "VersionNotFound",
    "VersionTaken",
]


class AgentkitError(Exception):
    """Base of every error of this package."""


class InvalidId(AgentkitError, ValueError):
    """A run id, agent name or scope part is empty, too long or holds forbidden characters."""


class InvalidSpec(AgentkitError, ValueError):
    """An agent, tool, model string or reference is not usable as written."""


class InvalidStoreUrl(AgentkitError, ValueError):
    """A store URL is malformed or names a store that this installation does not know."""


class InvalidDecision(AgentkitError, ValueError):
    """Decisions do not fit the open questions. Nothing was executed and nothing consumed."""


class QuestionNotFound(InvalidDecision, LookupError):
    """The run has no open question of that id."""


class StaleDecision(InvalidDecision):
    """The question does not take this decision any more: its deadline has passed, or it is about
    other arguments than those that were decided on.
    """


class AlreadyDecided(InvalidDecision):
    """Somebody has decided the question in another way before; that decision stands.

    Attributes:
        question: its id.
        answer: the decision that stands.
        actor: whose it is; empty where that is not known.
    """

    def __init__(self, message: str, *, question: str, answer: str, actor: str) -> None:
        super().__init__(message)
        self.question = question
        self.answer = answer
        self.actor = actor


class InvalidFork(AgentkitError, ValueError):
    """A run cannot be forked with such edits, or not at this version. Nothing was written."""


class MissingExtra(AgentkitError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""


class MissingKey(AgentkitError):
    """No API key was given and the environment variable for it is not set."""


class RunError(AgentkitError):
    """Base of errors that concern one run.

    Attributes:
        run_id: the run.
    """

    def __init__(self, message: str, *, run_id: str) -> None:
        super().__init__(message)
        self.run_id = run_id


class RunNotFound(RunError, LookupError):
    """No run of this id exists in this scope of this store."""


class RunIdReused(RunError):
    """The run id belongs to another task or another agent."""


class RunInUse(RunError):
    """Another worker holds the run. Attributes: `owner`, `expires_in_seconds`."""

    def __init__(self, message: str, *, run_id: str, owner: str, expires_in_seconds: float) -> None:
        super().__init__(message, run_id=run_id)
        self.owner = owner
        self.expires_in_seconds = expires_in_seconds


class RunSuspended(RunError):
    """The run waits for decisions. Attribute: `questions`."""

    def __init__(self, message: str, *, run_id: str, questions: Sequence[Question]) -> None:
        super().__init__(message, run_id=run_id)
        self.questions = tuple(questions)


class RunUnfinished(RunError):
    """A run that has not ended was to be carried on by another one.

    Attributes:
        status: of it: `running`, `suspended`, `parked` or `saved`.
        questions: the open ones, where it waits for decisions.
    """

    def __init__(
        self, message: str, *, run_id: str, status: str, questions: Sequence[Question] = ()
    ) -> None:
        super().__init__(message, run_id=run_id)
        self.status = status
        self.questions = tuple(questions)


class RunParked(RunError):
    """The run stopped at something to mend; `resume(run_id, {}, ctx)` goes on after mending.

    Attributes:
        reason: short word (`auth`, `quota`, `invalid_request`, `retries_spent`, …).
        usage: what the run has used so far.
    """

    def __init__(self, message: str, *, run_id: str, reason: str, usage: Usage) -> None:
        super().__init__(message, run_id=run_id)
        self.reason = reason
        self.usage = usage


class RunInterrupted(RunError):
    """This worker was told to stop and has left the run, which is resumable."""


class RunFailed(RunError):
    """The run ended in a way that no retry can mend. Attribute: `usage`."""

    def __init__(self, message: str, *, run_id: str, usage: Usage) -> None:
        super().__init__(message, run_id=run_id)
        self.usage = usage


class LeaseLost(RunError):
    """A newer epoch owns the run, or the lease may have lapsed: this worker must stop acting."""


class HeadMoved(RunError):
    """Somebody appended a note under the caller's own epoch; read the tail and decide again."""


class RunExpired(RunError):
    """A run that has not ended is there by its head alone: its entries expired, or were evicted or
    deleted. It is never started over by itself; give it up by deleting it.
    """


class VersionNotFound(RunError, LookupError):
    """The run has no such version. Attribute: `versions`, those that it has."""

    def __init__(self, message: str, *, run_id: str, versions: Sequence[int]) -> None:
        super().__init__(message, run_id=run_id)
        self.versions = tuple(versions)


class VersionTaken(RunError):
    """A checkpoint version exists already: somebody else saved at the same time."""


class NoteRefused(RunError):
    """The run does not take this note: it has ended, say, or knows its id for another one."""


class EntryTooLarge(RunError, ValueError):
    """One entry is larger than the limit; nothing was written."""


class JournalDamaged(RunError):
    """An entry cannot be read or its checksum does not fit. Attribute: `seq` of the first bad one.

    Nothing falls back to an older state by itself: later effects would be done again.
    """

    def __init__(self, message: str, *, run_id: str, seq: int) -> None:
        super().__init__(message, run_id=run_id)
        self.seq = seq


class ExportDamaged(AgentkitError):
    """A file of exported runs is not as it was written.

    Attributes:
        run_id: the run at that place; empty for none.
        line: where, from 1.
    """

    def __init__(self, message: str, *, run_id: str, line: int) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.line = line


class JournalTooNew(AgentkitError):
    """The store or journal was written by a newer release. Nothing was written to it."""


class StoreError(AgentkitError):
    """Base of errors of a store itself. It is never a tool's outcome: the run stays resumable."""


class StoreFailedOver(StoreError):
    """Another server has taken the place of the one that acknowledged the newest entries, and may
    lack some of them. Nothing was written.
    """


class StoreUnreachable(StoreError):
    """The store cannot be opened, read or written now (missing, locked, full, no permission)."""


class RunLocked(StoreUnreachable):
    """Another session of the database has locked one run for longer than is waited for. Nothing was
    written; other runs are not concerned.
    """


class StoreDamaged(StoreError):
    """The store's own files are damaged, or are not a store of ours."""


class StoreMisused(StoreError):
    """The store object is used in a way it does not support (closed, two loops at once, …)."""


class ModelError(AgentkitError):
    """One attempt to get an answer from a model failed.

    Attributes:
        kind: one of `agentkit.core.contracts.model.FailureKind`.
        status: the HTTP status, where there was one.
        retry_after_seconds: what the provider asked us to wait, where it did.
        may_be_paid: the provider may have produced (and billed) an answer that we did not get.
        should_retry: what the provider itself said about trying again (`x-should-retry`); `None`
            where it said nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        may_be_paid: bool = False,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.may_be_paid = may_be_paid
        self.should_retry = should_retry


class DeadlinePassed(AgentkitError):
    """What a tool waited for did not come in time. Raised in the tool."""


class OutcomeUnknown(AgentkitError):
    """Raised by a tool that cannot tell whether its effect happened."""


class StatementRefused(AgentkitError, ValueError):
    """A statement of a transactional tool is wrong, not allowed, or violates a constraint; it did
    nothing.
    """


class TransactionOver(AgentkitError):
    """The transaction of a transactional tool has ended before the tool; nothing of it happened."""


class ResultNotStorable(AgentkitError, TypeError):
    """A value cannot be kept as JSON; the message names the path and the type."""
