"""What the model, or the person who decides, reads about a call that was not simply made."""

__all__ = [
    "ATTEMPTS_SPENT",
    "CANNOT_RUN",
    "DUPLICATE",
    "IN_DOUBT",
    "LOOKED",
    "SKIPPED",
    "TOLD_IN_DOUBT",
    "TRUNCATED",
    "WITHHELD",
]

TRUNCATED = (
    "This call was not run: the answer was cut by the output limit, so its arguments may be "
    "incomplete. Repeat the call with a shorter answer."
)
WITHHELD = (
    "This call was not run: the provider stopped the answer that it stands in, so the call may not "
    "be what was meant."
)
DUPLICATE = "This call repeats an earlier one of the same turn; it ran once, see the result there."
ATTEMPTS_SPENT = "This call was interrupted {attempts} times and has no attempts left; no result."
IN_DOUBT = (
    "{tool} was started (attempt {attempt}) and {why}, so it may or may not have taken effect. "
    "Look at the outside system, then answer: done (with what it returned), failed, run_again or "
    "skip."
)
TOLD_IN_DOUBT = (
    "{tool} was started and its outcome is not known: it may or may not have taken effect. It was "
    "not run again. Find out before you repeat it."
)
LOOKED = " Its own look at the outside system could not tell: {why}"
CANNOT_RUN = "It cannot be run again now: "
SKIPPED = "A person decided not to run this call again. Whether it took effect is not known."
