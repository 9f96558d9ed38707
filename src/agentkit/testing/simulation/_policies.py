"""What the tools of the simulation rely on, and what the checker is told of them.

`POLICIES` says what each of them relies on when nobody knows whether it has happened:

- `read`: nothing happens, so it runs again;
- `key`: the system outside honours idempotency keys;
- `token`: the system outside refuses whoever has an older fencing token than the last that looked;
- `reconcile`: the system outside says whether it has happened, and where it has not, it may close
  the request, so that one which is still on its way is refused;
- `once`: the store keeps for each key that somebody is at it, and what came of it;
- `ask`: a human is asked;
- `tell`: the model is told that nobody knows;
- `late`: a human is asked, but the tool is often still at it, and tells when it has ended;
- `approve`: a human has to agree before it is made at all; after that it is as `key` or `ask`;
- `wait`: it waits for an answer, a time or an event before its effect, which is as `key` or `ask`;
- `look`: the tool looks, and acts where it finds nothing;
- `guess`: the system outside is asked, and "not there" is taken for "it cannot happen any more".

The last two are **not safe**: between looking and acting another worker may act, or a request may
arrive. They are here to show that the simulation would see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from agentkit.testing.invariants import ToolKind

__all__ = ["GUARDED", "KINDS", "POLICIES", "UNSAFE"]

UNSAFE: Final = frozenset({"look", "guess"})
"""The policies that are not safe: their doubles show that the simulation sees doubles."""

GUARDED: Final = frozenset({"key", "token", "once"})
"""The policies by which an effect happens once even where a person orders it again."""

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "lookup": "read",
        "scan": "read",
        "upsert": "key",
        "store": "key",
        "book": "token",
        "charge": "reconcile",
        "refund": "reconcile",
        "mail": "once",
        "text": "once",
        "notify": "ask",
        "ship": "ask",
        "post": "tell",
        "deliver": "late",
        "linger": "late",
        "pay": "approve",
        "wire": "approve",
        "survey": "wait",
        "nap": "wait",
        "collect": "wait",
        "fulfil": "wait",
        "peek": "look",
        "order": "guess",
    }
)

KINDS: Mapping[str, ToolKind] = MappingProxyType(
    {
        "lookup": "read",
        "scan": "read",
        "upsert": "idempotent",
        "store": "idempotent",
        "book": "idempotent",
        "charge": "reconciled",
        "refund": "reconciled",
        "mail": "plain",
        "text": "idempotent",
        "notify": "plain",
        "ship": "plain",
        "post": "plain",
        "deliver": "plain",
        "linger": "plain",
        "pay": "plain",
        "wire": "idempotent",
        "survey": "plain",
        "nap": "idempotent",
        "collect": "idempotent",
        "fulfil": "idempotent",
    }
)
"""For the invariant checker. Unsafe ones are left out: their doubles are counted, not complained
of."""
