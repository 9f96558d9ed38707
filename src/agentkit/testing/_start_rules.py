"""How a run begins, for the checker."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit.testing._facts import Story

__all__ = ["beginnings"]

_BEFORE_A_START = frozenset({"lease_taken", "parked", "cancelled"})
"""What a run that was submitted may hold without a start, beside notes."""


def beginnings(story: Story) -> Iterator[tuple[str, str]]:
    """I4: one start, which comes first; or behind one submission, as that said."""
    starts, submissions = story.of("run_started"), story.of("run_submitted")
    if not submissions:
        if story.facts and (len(starts) != 1 or story.facts[0].kind != "run_started"):
            yield "I4", f"the run has {len(starts)} start entries, or one that is not its first"
        return
    if len(submissions) > 1 or len(starts) > 1 or story.facts[0] is not submissions[0]:
        yield "I4", f"the run has {len(submissions)} submissions and {len(starts)} start entries"
        return
    begun = starts[0].seq if starts else len(story.facts) + 1
    for fact in story.facts[: begun - 1]:
        if not fact.id and fact.kind not in _BEFORE_A_START:
            yield "I4", f"entry {fact.seq} ({fact.kind}) stands before the start of its run"
    for start in starts:
        said = submissions[0].body
        for name in ("task", "identity", "autonomy"):
            if start.body.get(name, "") != said.get(name, ""):
                yield "I4", f"the run was begun with another {name} than was submitted"
        if said["agent"] not in {start.body["agent"], start.body.get("reference", "")}:
            yield "I4", "the run was begun by another agent than it was submitted for"
