"""Values that are kept for a while under a key: what `ToolContext.once` is made of."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import msgspec

from agentkit.core.contracts.ports import JournalPort

__all__ = ["Claim", "OncePort", "keeps_values"]


class Claim(msgspec.Struct, frozen=True):
    """Answer of `claim_value`.

    Args:
        state: `ours`: the key is ours to produce a value for. `open`: somebody claimed it and has
            not brought a value, whatever became of him. `settled`: `value` was brought.
        value: JSON text, of a settled key.
    """

    state: Literal["ours", "open", "settled"]
    value: str = ""


@runtime_checkable
class OncePort(Protocol):
    """A store that keeps values by key, each within its scope and for a limited time.

    A key is claimed, then settled. From the claim on it is the claimant's alone until the claim's
    time is over by the store's clock; then it is as if it had never been claimed. That time goes on
    while the machine is off. In a store of this machine it ends no earlier because the wall clock
    was moved forward within one boot; a server has its wall clock alone. Values belong to no run:
    they stay when runs are deleted.
    """

    @property
    def keeps_values(self) -> bool:
        """Whether the two methods work here; a wrapper answers for the store it wraps."""
        ...

    async def claim_value(self, key: str, *, token: str, ttl_seconds: float) -> Claim:
        """Claim `key` for `ttl_seconds` from now, unless it is claimed; atomic and durable.

        A claim under the same `token` that has no value yet is `ours` again: repeating a request
        whose answer was lost is safe. Forgets some of what has lapsed. A claim lasts for a century
        at the most.

        Raises:
            StoreMisused: `ttl_seconds` is less than a millisecond.
            StoreError: the store failed; it is unknown whether the key is claimed (repeat to know).
        """
        ...

    async def settle_value(self, key: str, *, token: str, value: str) -> bool:
        """Keep `value` for as long as the claim under `token` lasts; durable when it returns.

        Returns whether that claim is still there: nobody else has the key.

        Raises:
            StoreError: the store failed; it is unknown whether the value is kept (repeat to know).
        """
        ...


def keeps_values(port: JournalPort) -> OncePort | None:
    """The port as one that keeps values; `None` where it does not."""
    return port if isinstance(port, OncePort) and port.keeps_values else None
