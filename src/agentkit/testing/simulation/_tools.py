"""One tool for each way of being safe, and one that is not; and the agent that has them all.

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
- `look`: the tool looks, and acts where it finds nothing;
- `guess`: the system outside is asked, and "not there" is taken for "it cannot happen any more".

The last two are **not safe**: between looking and acting another worker may act, or a request may
arrive. They are here to show that the simulation would see it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from agentkit.agents import Agent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.errors import OutcomeUnknown
from agentkit.testing.invariants import ToolKind
from agentkit.testing.simulation._outside import HERE, Here
from agentkit.tools import CannotHappen, Done, Reconciled, Tool, ToolContext, Unknown, tool

TOOL_SECONDS: Final = 60.0
"""The timeout of the tools here, except for:"""

LATE_SECONDS: Final = 5.0
"""That of tools which are often still at it then."""

ONCE_SECONDS: Final = 100_000.0
"""For how long the store keeps what was done once: longer than any schedule takes."""

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
    }
)
"""For the invariant checker. Unsafe ones are left out: their doubles are counted, not complained
of."""


@cache
def the_agent() -> Agent:
    """One definition for all schedules: it holds no state of any run."""
    return Agent("worker", prompt="Work.", cognition=ReActCognition(_tools(), max_iterations=10))


def _tools() -> list[Tool]:
    read = tool(side_effecting=False, timeout=TOOL_SECONDS)
    keyed = tool(side_effecting=True, idempotent=True, timeout=TOOL_SECONDS)
    plain = tool(side_effecting=True, timeout=TOOL_SECONDS)
    late = tool(side_effecting=True, timeout=LATE_SECONDS)
    return [
        read(lookup),
        read(scan),
        keyed(upsert),
        keyed(store),
        keyed(book),
        tool(side_effecting=True, timeout=TOOL_SECONDS, reconcile=seek_charge)(charge),
        tool(side_effecting=True, timeout=TOOL_SECONDS, reconcile=seek_refund)(refund),
        plain(mail),
        keyed(text),
        plain(notify),
        plain(ship),
        tool(side_effecting=True, timeout=TOOL_SECONDS, on_in_doubt="tell_model")(post),
        late(deliver),
        late(linger),
        keyed(peek),
        tool(side_effecting=True, timeout=TOOL_SECONDS, reconcile=seek_order)(order),
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


async def charge(item: str, context: ToolContext) -> str:
    """Have an effect by a request that may be on its way for long."""
    here = await _enter("charge", item, context)
    return await _request(here, "charge", item, context)


async def seek_charge(context: ToolContext) -> Reconciled:
    """Ask what became of it, in the event loop."""
    here = await _begin_to_look()
    await here.lag()
    found = _ask_outside(here, context)
    await here.lag()
    _may_fail(here, "after")
    return found


def refund(item: str, context: ToolContext) -> str:
    """Have an effect in a thread, at a system that can be asked about it."""
    here = _begin("refund", item, context)
    if _name(context) in here.outside.closed:
        here.record("refund", item, context, kind="refused")
        raise RuntimeError("the request was closed")
    here.record("refund", item, context, result=f"sent {item}")
    _may_fail(here, "after")
    return f"sent {item}"


def seek_refund(context: ToolContext) -> Reconciled:
    """Ask what became of it, in a thread."""
    here = HERE.get()
    here.process.must_live()
    _may_fail(here, "before")
    return _ask_outside(here, context)


async def order(item: str, context: ToolContext) -> str:
    """Have an effect as `charge` has it."""
    here = await _enter("order", item, context)
    return await _request(here, "order", item, context)


async def seek_order(context: ToolContext) -> Reconciled:
    """Ask, and call what is not there impossible: what must not be done."""
    here = await _begin_to_look()
    await here.lag()
    done = here.outside.done_under(context.idempotency_key)
    await here.lag()
    return CannotHappen() if done is None else Done(done.result)


async def mail(item: str, context: ToolContext) -> str:
    """Have an effect that the store guards; a person is asked where it is not known."""
    return await _once("mail", item, context)


async def text(item: str, context: ToolContext) -> str:
    """Have an effect that the store guards, and so be run again without asking."""
    return await _once("text", item, context)


async def notify(item: str, context: ToolContext) -> str:
    """Have an effect, in the event loop."""
    return await _send("notify", item, context)


async def post(item: str, context: ToolContext) -> str:
    """Have an effect, in the event loop; what became of it the model may find out."""
    return await _send("post", item, context)


def ship(item: str, context: ToolContext) -> str:
    """Have an effect, in a thread."""
    here = _begin("ship", item, context)
    here.record("ship", item, context, result=f"sent {item}")
    _may_fail(here, "after")
    return f"sent {item}"


def deliver(item: str, context: ToolContext) -> str:
    """Have an effect, in a thread that may end long after its time is over."""
    here = _begin("deliver", item, context)
    here.record("deliver", item, context, result=f"sent {item}")
    _may_fail(here, "after")
    return f"sent {item}"


async def linger(item: str, context: ToolContext) -> str:
    """Have an effect late, whoever says that the time is over."""
    here = _begin("linger", item, context)
    clock = here.process.clock
    until = clock.elapsed() + here.weather.ending()
    while clock.elapsed() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await clock.sleep(until - clock.elapsed())
    here.record("linger", item, context, result=f"sent {item}")
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


async def _send(name: str, item: str, context: ToolContext) -> str:
    here = await _enter(name, item, context)
    await here.lag()
    here.record(name, item, context, result=f"sent {item}")
    await here.lag()
    _may_fail(here, "after")
    return f"sent {item}"


async def _once(name: str, item: str, context: ToolContext) -> str:
    here = await _enter(name, item, context)

    async def send() -> str:
        _may_fail(here, "before")
        await here.lag()
        here.record(name, item, context, result=f"sent {item}")
        await here.lag()
        _may_fail(here, "after")
        return f"sent {item}"

    await here.lag()
    return str(await context.once(f"{name}:{item}", ONCE_SECONDS, send))


async def _request(here: Here, name: str, item: str, context: ToolContext) -> str:
    await here.lag()
    result = f"sent {item}"
    if not await here.request(name, item, context, name=_name(context), result=result):
        raise RuntimeError("the request was closed")
    await here.lag()
    _may_fail(here, "after")
    return result


def _name(context: ToolContext) -> str:
    """One for each attempt, so that closing one leaves the next alone."""
    return f"{context.idempotency_key}, attempt {context.attempt}"


async def _begin_to_look() -> Here:
    here = HERE.get()
    here.process.must_live()
    _may_fail(here, "before")
    if here.weather.failure("hung tool"):
        await here.process.clock.sleep(1.5 * TOOL_SECONDS)
    return here


def _ask_outside(here: Here, context: ToolContext) -> Reconciled:
    """A system that knows, or that closes the request, or that can do neither."""
    done = here.outside.done_under(context.idempotency_key)
    if done is not None:
        return Done(done.result)
    if here.weather.world.likely(0.3):
        return Unknown("it is not there, and may still come")
    here.process.say(f"has closed {_name(context)}")
    here.outside.closed.add(_name(context))
    return CannotHappen()


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
