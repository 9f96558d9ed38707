"""What the kit has to know about a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, TypeAlias

from agentkit.core.contracts.once import keeps_values
from agentkit.core.contracts.ports import CheckpointPort, ClockPort, JournalPort
from agentkit.core.contracts.transactions import can_transact
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeClock

__all__ = ["CAPABILITIES", "Capability", "ClockKind", "Harness", "lacking"]

Capability: TypeAlias = Literal[
    "slots",
    "journal",
    "clock",
    "handles",
    "loops",
    "processes",
    "fork",
    "elapsed",
    "due",
    "scopes",
    "tombstones",
    "expiry",
    "values",
    "transactions",
]
"""What a check needs; `CAPABILITIES` says what each is."""

CAPABILITIES: Mapping[Capability, str] = {
    "slots": "the five methods of CheckpointPort; every store has them",
    "journal": "the full port, JournalPort; all but stores of five methods have it",
    "clock": "the clock that the store judges by stands still until the harness moves it",
    "handles": "two handles on one place see the same data",
    "loops": "one object serves several event loops and threads",
    "processes": "child processes open the place too",
    "fork": "parent and child go on with one object after a fork",
    "elapsed": "a wall clock that is set forward frees no value before its time",
    "due": "runs that want a worker can be asked for",
    "scopes": "the scopes that hold runs can be listed",
    "tombstones": "the entries of an ended run can go while its head stays",
    "expiry": "the entries of ended runs go by themselves after a time that can be set",
    "values": "values are kept by key, as OncePort says",
    "transactions": "tools write in the transaction of their outcome, as TransactionalPort says",
}
"""What stores may offer. The first two are the base, the others are optional."""

ClockKind: TypeAlias = Literal["held", "moved", "real"]
"""`held`: the store judges by the clock that `open` is given, which stands still until it is moved.
`moved`: its own clock goes on, but `let_pass` can make it jump. `real`: time has to be waited for.
"""


class Harness(ABC):
    """How the kit comes to stores of one kind. Subclass it: `new_place` and `open` are needed.

    A *place* is a string that says where data is: a path, a URL, whatever `open` understands.

    Attributes:
        name: what the report calls the store.
        clock: see `ClockKind`.
        opener: `package.module:function`, which child processes import and call with a place to
            get a handle that judges by the machine's real clock; empty where there is none.
        lacks: capabilities that the store does not have, each with the reason. Missing
            transactions, values and the like are noticed without being named here.
        secrets: texts within places that no message may show, such as passwords.
        parameters: how transactional tools write them: `?` and `:name`, or `%s` and `%(name)s`.
    """

    name: str = "store"
    clock: ClockKind = "real"
    opener: str = ""
    lacks: Mapping[Capability, str] = {}
    secrets: tuple[str, ...] = ()
    parameters: Literal["qmark", "format"] = "qmark"

    @abstractmethod
    async def new_place(self) -> str:
        """A place that is empty and that nobody else uses."""

    @abstractmethod
    def open(self, place: str, clock: ClockPort) -> CheckpointPort:
        """A handle on the place: each call gives a new object, as another process would have it.

        Args:
            place: from `new_place`.
            clock: what a store whose clock is `held` judges by.
        """

    async def remove(self, place: str) -> None:  # noqa: B027 - most places need no farewell
        """Give the place back, data and all. Its handles are closed."""

    async def let_pass(self, place: str, clock: FakeClock, seconds: float) -> None:  # noqa: ARG002
        """Let `seconds` pass by the clock of the store at `place`. Override it for `moved`."""
        if self.clock == "held":
            clock.advance(seconds)
        else:
            await SystemClock().sleep(seconds)

    def open_expiring(self, place: str, *, seconds: float) -> JournalPort | None:  # noqa: ARG002
        """A handle whose ended runs keep their entries for `seconds`; None where none do that."""
        return None


def lacking(harness: Harness, port: CheckpointPort, place: str) -> dict[Capability, str]:
    """What this store does not offer, with reasons. `port`: a handle on `place`."""
    missing: dict[Capability, str] = {}
    if not isinstance(port, JournalPort):
        return dict.fromkeys(CAPABILITIES.keys() - {"slots"}, "it has only the five methods")
    if keeps_values(port) is None:
        missing["values"] = "it keeps no values"
    if can_transact(port) is None:
        missing["transactions"] = "it has no transactions for tools"
    if harness.clock != "held":
        missing["clock"] = "its clock cannot be held"
    if not harness.opener:
        missing["processes"] = missing["fork"] = "the harness names no opener"
    if harness.open_expiring(place, seconds=1.0) is None:
        missing["expiry"] = "the harness opens no store whose ended runs expire"
    return missing | dict(harness.lacks)
