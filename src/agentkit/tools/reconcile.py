"""What a tool's `reconcile` function may say of an earlier attempt that nobody heard the end of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["CannotHappen", "Done", "Reconciled", "Unknown"]


@dataclass(frozen=True)
class Done:
    """The attempt took effect, and this is what the tool would have returned."""

    result: object = None


@dataclass(frozen=True)
class CannotHappen:
    """The attempt had no effect and never will have one: the call may be made again.

    Say it only where the outside system rules it out for good: it refused the request, or its
    window for the key is closed. "I looked and it is not there" is `Unknown`: a request that is
    still on its way arrives after you looked.
    """


@dataclass(frozen=True)
class Unknown:
    """It cannot be told. The run does what the tool chose for that, by default asks a person.

    Args:
        why: what was found, for the person who decides.
    """

    why: str = ""


Reconciled: TypeAlias = Done | CannotHappen | Unknown
