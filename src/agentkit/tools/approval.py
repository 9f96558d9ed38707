"""What `@tool` says about a person's approval."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.runtime.context import RunContext

__all__ = ["NO_APPROVAL", "Approval", "RequiresApproval", "check_approval"]

RequiresApproval: TypeAlias = (
    "bool | Literal['always'] | Callable[[Mapping[str, Any], RunContext], object]"
)
"""Whether calls wait for a person. A function is given the checked arguments and the `RunContext`,
decides for one call, and must be quick and change nothing; whatever it returns but `False`, and
whatever it raises, means that the call waits."""


class Approval(NamedTuple):
    """See `tool`."""

    required: object = False
    seconds: float | None = None
    on_deadline: Literal["reject", "approve"] = "reject"
    on_repeat_refused: Literal["refuse", "ask"] = "refuse"


NO_APPROVAL = Approval()
"""Of a tool that says nothing about it."""


def check_approval(approval: Approval) -> None:
    """Refuse what cannot be meant.

    Raises:
        InvalidSpec: an option is impossible.
    """
    required, seconds = approval.required, approval.seconds
    if not (isinstance(required, bool) or required == "always" or callable(required)):
        raise InvalidSpec(
            "requires_approval is True, False, 'always', or a function of the arguments and the "
            f"context; not {required!r}"
        )
    if inspect.iscoroutinefunction(required):
        raise InvalidSpec("requires_approval takes a plain function: write def, not async def")
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if seconds is not None and not (number and 0 < seconds < math.inf):
        raise InvalidSpec(f"approval_seconds must be a positive number, not {seconds!r}")
    if approval.on_deadline not in {"reject", "approve"}:
        raise InvalidSpec(f"on_deadline is 'reject' or 'approve', not {approval.on_deadline!r}")
    if approval.on_deadline == "approve" and seconds is None:
        raise InvalidSpec("on_deadline='approve' needs a deadline: say approval_seconds=…")
    if approval.on_repeat_refused not in {"refuse", "ask"}:
        choice = approval.on_repeat_refused
        raise InvalidSpec(f"on_repeat_refused is 'refuse' or 'ask', not {choice!r}")
