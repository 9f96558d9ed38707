"""One tool for each way of being safe, and one that is not; and the agent that has them all.

`POLICIES` says what each of them relies on when nobody knows whether it has happened:

- `read`: nothing happens, so it runs again;
- `key`: the system outside honours idempotency keys;
- `token`: the system outside refuses whoever has an older fencing token than the last that looked;
- `ask`: a human is asked;
- `look`: the tool looks, and acts where it finds nothing. This one is **not safe**: between the two
  another worker may act. It is here to show that the simulation would see it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.errors import OutcomeUnknown
from agentkit.testing.invariants import ToolKind
from agentkit.testing.simulation._outside import HERE, Here
from agentkit.tools import Tool, ToolContext, tool

TOOL_SECONDS: Final = 60.0
"""The timeout of every tool here."""

POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "lookup": "read",
        "scan": "read",
        "upsert": "key",
        "store": "key",
        "book": "token",
        "notify": "ask",
        "ship": "ask",
        "peek": "look",
    }
)

KINDS: Mapping[str, ToolKind] = MappingProxyType(
    {
        "lookup": "read",
        "scan": "read",
        "upsert": "idempotent",
        "store": "idempotent",
        "book": "idempotent",
        "notify": "plain",
        "ship": "plain",
    }
)
"""For the invariant checker. `peek` is left out: its doubles are counted, not complained of."""


@cache
def the_agent() -> Agent:
    """One definition for all schedules: it holds no state of any run."""
    return Agent("worker", prompt="Work.", cognition=ReActCognition(_tools(), max_iterations=10))


def _tools() -> list[Tool]:
    read = tool(side_effecting=False, timeout=TOOL_SECONDS)
    keyed = tool(side_effecting=True, idempotent=True, timeout=TOOL_SECONDS)
    plain = tool(side_effecting=True, timeout=TOOL_SECONDS)
    return [
        read(lookup),
        read(scan),
        keyed(upsert),
        keyed(store),
        keyed(book),
        plain(notify),
        plain(ship),
        keyed(peek),
    ]


async def lookup(item: str, context: ToolContext) -> str:
    """Read in the event loop."""
    here = await _enter("lookup", item, context)
    await here.lag()
    return f"value of {item}"


def scan(item: str, context: ToolContext) -> str:
    """Read in a thread."""
    _begin("scan", item, context)
    return f"value of {item}"


async def upsert(item: str, context: ToolContext) -> str:
    """Have an effect under the call's key, in the event loop."""
    here = await _enter("upsert", item, context)
    await here.lag()
    result = _put(here, "upsert", item, context)
    await here.lag()
    _may_fail(here, "after")
    return result


def store(item: str, context: ToolContext) -> str:
    """Have an effect under the call's key, in a thread."""
    here = _begin("store", item, context)
    result = _put(here, "store", item, context)
    _may_fail(here, "after")
    return result


async def book(item: str, context: ToolContext) -> str:
    """Look and act at a system that knows fencing tokens."""
    here = await _enter("book", item, context)
    tokens = here.outside.tokens
    await here.lag()
    here.process.must_live()
    tokens[item] = max(tokens.get(item, 0), context.fencing_token)
    if _found(here, "book", context):
        return f"booked {item}"
    await here.lag()
    if context.fencing_token < tokens[item]:
        here.record("book", item, context, kind="refused")
        raise OutcomeUnknown("a newer worker was here")
    here.record("book", item, context)
    await here.lag()
    return f"booked {item}"


async def notify(item: str, context: ToolContext) -> str:
    """Have an effect, in the event loop."""
    here = await _enter("notify", item, context)
    await here.lag()
    here.record("notify", item, context, result=f"sent {item}")
    await here.lag()
    _may_fail(here, "after")
    return f"sent {item}"


def ship(item: str, context: ToolContext) -> str:
    """Have an effect, in a thread."""
    here = _begin("ship", item, context)
    here.record("ship", item, context, result=f"sent {item}")
    _may_fail(here, "after")
    return f"sent {item}"


async def peek(item: str, context: ToolContext) -> str:
    """Look whether it has happened, and do it if not: what must not be done."""
    here = await _enter("peek", item, context)
    await here.lag()
    if not _found(here, "peek", context):
        await here.lag()
        here.record("peek", item, context)
        await here.lag()
    return f"sent {item}"


async def _enter(name: str, item: str, context: ToolContext) -> Here:
    here = _begin(name, item, context)
    if here.weather.failure("hung tool"):
        await here.process.clock.sleep(1.5 * TOOL_SECONDS)
    return here


def _begin(name: str, item: str, context: ToolContext) -> Here:
    here = HERE.get()
    here.record(name, item, context, kind="run")
    _may_fail(here, "before")
    return here


def _may_fail(here: Here, when: str) -> None:
    if here.weather.failure("tool failure"):
        sure = here.weather.world.likely(0.5)
        raise (RuntimeError if sure else OutcomeUnknown)(f"simulated, {when} the effect")


def _put(here: Here, name: str, item: str, context: ToolContext) -> str:
    """A sink that honours keys: one effect for each, for ever."""
    sink, key = here.outside.sink, context.idempotency_key
    if key in sink:
        here.record(name, item, context, kind="refused")
    else:
        here.record(name, item, context, result=f"stored {item}")
        sink[key] = f"stored {item}"
    return sink[key]


def _found(here: Here, name: str, context: ToolContext) -> bool:
    return any(
        one.kind == "effect" and one.tool == name and one.key == context.idempotency_key
        for one in here.outside.effects
    )
