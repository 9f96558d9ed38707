"""The invariants of runs that somebody stopped: nothing begins after a cancel, nor while paused."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit.testing._facts import Story

_BEGIN = frozenset({"tool_started", "question_asked", "wait_started", "step_completed"})
"""What only a worker records that goes on with the run."""

_ENDS = frozenset({"wait_started"})
"""What ends an act in a paused run, too: its tool waits, and so it is left."""

_REFUSED = frozenset(
    {
        "decided",
        "unparked",
        "pause_asked",
        "cancel_asked",
        "message_added",
        "event_received",
        "finished",
        "failed",
        "parked",
    }
)
"""What a run does not take any more once it was cancelled."""


def stopped(story: Story) -> Iterator[tuple[str, str]]:
    """I10: after a cancel nothing begins, nothing is taken, and the only end is that of a cancel;
    while a run is paused nothing begins.
    """
    asked = paused = 0
    answers = 0
    for fact in story.facts:
        if fact.kind == "forked":
            asked = paused = answers = 0
        if asked and fact.kind in _BEGIN | _REFUSED:
            yield "I10", f"entry {fact.seq} ({fact.kind}) follows the cancel at {asked}"
        ends = fact.kind in _ENDS or fact.body.get("kind") == "input"
        if paused and fact.kind in _BEGIN and not ends:
            yield "I10", f"entry {fact.seq} ({fact.kind}) begins while paused at {paused}"
        if fact.kind == "model_answered" and (asked or paused):
            answers += 1
            if answers > 1:
                yield "I10", f"answer {fact.seq} was asked for after the run was stopped"
        if fact.kind == "cancelled" and not asked:
            yield "I10", f"the run was cancelled at {fact.seq}, and nobody had asked for it"
        if fact.kind == "cancel_asked":
            asked = fact.seq
        elif fact.kind == "pause_asked":
            paused, answers = fact.seq, 0
        elif fact.kind == "unparked":
            paused = answers = 0
