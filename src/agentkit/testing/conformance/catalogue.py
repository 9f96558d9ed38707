"""How a check is written down."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.harness import Capability

__all__ = ["Check", "Coroutine", "Subject"]

Coroutine: TypeAlias = Callable[[Bench], Awaitable[None]]


class Check(msgspec.Struct, frozen=True):
    """One promise of a port, and the coroutine that sees whether a store keeps it.

    Args:
        name: `subject.what-holds`.
        law: whose docstring to read, such as `JournalPort.append`.
        needs: what the store must offer for the check to make sense.
        promise: what holds, in words.
        run: raises `Broken`, or whatever the store raises, where it does not hold.
        slow: takes long, because only large numbers show it.
    """

    name: str
    law: str
    needs: tuple[Capability, ...]
    promise: str
    run: Coroutine
    slow: bool = False


class Subject:
    """The checks of one file; each is a coroutine function whose docstring is the promise."""

    def __init__(self, name: str, *needs: Capability) -> None:
        self.name = name
        self.checks: list[Check] = []
        self._needs = needs

    def check(
        self, law: str, *needs: Capability, slow: bool = False
    ) -> Callable[[Coroutine], Coroutine]:
        """Write down what follows as a check of `law`."""

        def keep(run: Coroutine) -> Coroutine:
            title = getattr(run, "__name__", "").replace("_", "-")
            promise = " ".join((inspect.getdoc(run) or "").split())
            wanted = (*self._needs, *needs)
            self.checks.append(Check(f"{self.name}.{title}", law, wanted, promise, run, slow))
            return run

        return keep
