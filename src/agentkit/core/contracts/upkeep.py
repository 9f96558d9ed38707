"""What some stores can do for their own upkeep: give space back, and bring their schema up."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from agentkit.core.contracts.ports import JournalPort

__all__ = ["Migration", "MigrationPort", "ReclaimPort", "Reclaimed", "migrates", "reclaims"]


class Reclaimed(msgspec.Struct, frozen=True):
    """What came of giving space back: `freed_bytes` of the disk, and why it is not more."""

    freed_bytes: int
    note: str = ""


@runtime_checkable
class ReclaimPort(Protocol):
    """A store whose space is the disk's again only when it is asked for."""

    @property
    def can_reclaim(self) -> bool:
        """Whether `reclaim` works here; a wrapper answers for the store it wraps."""
        ...

    async def reclaim(self, *, limit_seconds: float) -> Reclaimed:
        """Give back what removed runs have left, whatever their scope, for at most this long.

        Safe beside other processes and at any kill. That others keep it from being done, or that
        the time or the disk was not enough, is no error: the answer says so.

        Raises:
            StoreError: the store cannot be used.
        """
        ...


class Migration(msgspec.Struct, frozen=True):
    """One step of a store's schema.

    Args:
        number: 1, 2, 3 …; a store has all steps up to one number.
        name: what it does, in a word or two.
        sql: what is executed, as a script that a person may run.
        applied: whether the store has it.
    """

    number: int
    name: str
    sql: str
    applied: bool


@runtime_checkable
class MigrationPort(Protocol):
    """A store with a schema that newer releases add to. Whoever opens the store first brings it up;
    here somebody does so at a time of his own, or only looks.
    """

    @property
    def can_migrate(self) -> bool:
        """Whether the two methods work here; a wrapper answers for the store it wraps."""
        ...

    async def migrations(self) -> list[Migration]:
        """All steps that this release knows, in order. Nothing is written, nothing created.

        Raises:
            JournalTooNew: the store has more steps.
        """
        ...

    async def migrate(self) -> list[Migration]:
        """Apply what the store lacks; returns what it lacked. Of many that begin at once one does
        each step, and one that is killed is carried on by the next.

        Raises:
            JournalTooNew: the store has more steps; nothing was written.
            StoreError: the store failed; the steps before are applied.
        """
        ...


def reclaims(port: JournalPort) -> ReclaimPort | None:
    """The port as one that gives space back; `None` where it does not."""
    return port if isinstance(port, ReclaimPort) and port.can_reclaim else None


def migrates(port: JournalPort) -> MigrationPort | None:
    """The port as one with a schema; `None` where it has none."""
    return port if isinstance(port, MigrationPort) and port.can_migrate else None
