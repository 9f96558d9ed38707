"""Exit codes, and which error means which."""

from __future__ import annotations

from agentkit.core.contracts import errors

__all__ = [
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "IN_USE",
    "NEEDS_SOMEONE",
    "NOT_FOUND",
    "OK",
    "UNREACHABLE",
    "USAGE",
    "exit_code_of",
]

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
IN_USE = 4
NEEDS_SOMEONE = 5
UNREACHABLE = 6
INTERRUPTED = 130

EXIT_CODES = """\
Exit codes: 0 ok · 1 failed · 2 usage · 3 not found · 4 in use or stale · 5 suspended or parked
(needs someone) · 6 store unreachable · 130 interrupted."""

_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (errors.RunNotFound, NOT_FOUND),
    (errors.VersionNotFound, NOT_FOUND),
    (errors.QuestionNotFound, NOT_FOUND),
    (errors.AlreadyDecided, IN_USE),
    (errors.StaleDecision, IN_USE),
    (errors.RunInUse, IN_USE),
    (errors.RunInterrupted, INTERRUPTED),
    (errors.LeaseLost, IN_USE),
    (errors.RunIdReused, IN_USE),
    (errors.NoteRefused, IN_USE),
    (errors.RunSuspended, NEEDS_SOMEONE),
    (errors.RunUnfinished, NEEDS_SOMEONE),
    (errors.RunParked, NEEDS_SOMEONE),
    (errors.RunExpired, NEEDS_SOMEONE),
    (errors.JournalTooNew, UNREACHABLE),
    (errors.StoreError, UNREACHABLE),
    (errors.InvalidId, USAGE),
    (errors.InvalidSpec, USAGE),
    (errors.InvalidStoreUrl, USAGE),
    (errors.InvalidDecision, USAGE),
    (errors.InvalidFork, USAGE),
    (errors.ResultNotStorable, USAGE),
    (errors.MissingExtra, USAGE),
    (errors.MissingKey, USAGE),
)


def exit_code_of(error: BaseException) -> int:
    """The exit code for an error of ours; `FAILED` for those without one of their own."""
    if isinstance(error, errors.RunUnfinished) and error.status == "running":
        return IN_USE
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILED)
