"""An open question as a person is shown it: everything that a decision will be bound to."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit.cli.output import at_time, one_line
from agentkit.core.contracts.types import Question

__all__ = ["asked_lines"]


def asked_lines(question: Question, *, title: str) -> Iterator[str]:
    """Lines: why somebody is asked, the whole call, what may be answered and until when."""
    yield f"{title}: {one_line(question.prompt)}"
    yield f"  call:    {one_line(question.tool)} {question.arguments}"
    schema = f" {question.schema}" if question.schema else ""
    yield f"  answers: {', '.join(question.answers)}{schema}"
    if question.deadline:
        yield f"  until:   {at_time(question.deadline)}, then {question.on_deadline}"
