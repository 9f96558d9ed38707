"""One tool for each way of being safe, and some that are not; see `_policies`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from agentkit.core.contracts.errors import OutcomeUnknown
from agentkit.testing.simulation._outside import HERE, Here
from agentkit.tools import CannotHappen, Done, Reconciled, Tool, ToolContext, Unknown, tool

__all__ = ["TOOL_SECONDS", "begin", "enter", "may_fail", "plain_tools", "put"]

TOOL_SECONDS: Final = 60.0
"""The timeout of the tools here, except for:"""

LATE_SECONDS: Final = 5.0
"""That of tools which are often still at it then."""

ONCE_SECONDS: Final = 100_000.0
"""For how long the store keeps what was done once: longer than any schedule takes."""


def plain_tools() -> list[Tool]:
    """Those that neither wait nor are approved."""
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
    here = await enter("lookup", item, context)
    await here.lag()
    return f"value of {item}"


def scan(item: str, context: ToolContext) -> str:
    """Read in a thread."""
    begin("scan", item, context)
    return f"value of {item}"


async def upsert(item: str, context: ToolContext) -> str:
    """Have an effect under the call's key, in the event loop."""
    here = await enter("upsert", item, context)
    await here.lag()
    result = put(here, "upsert", item, context)
    await here.lag()
    may_fail(here, "after")
    return result


def store(item: str, context: ToolContext) -> str:
    """Have an effect under the call's key, in a thread."""
    here = begin("store", item, context)
    result = put(here, "store", item, context)
    may_fail(here, "after")
    return result


async def book(item: str, context: ToolContext) -> str:
    """Look and act at a system that knows fencing tokens."""
    here = await enter("book", item, context)
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
    here = await enter("charge", item, context)
    return await _request(here, "charge", item, context)


async def seek_charge(context: ToolContext) -> Reconciled:
    """Ask what became of it, in the event loop."""
    here = await _begin_to_look()
    await here.lag()
    found = _ask_outside(here, context)
    await here.lag()
    may_fail(here, "after")
    return found


def refund(item: str, context: ToolContext) -> str:
    """Have an effect in a thread, at a system that can be asked about it."""
    here = begin("refund", item, context)
    if _name(context) in here.outside.closed:
        here.record("refund", item, context, kind="refused")
        raise RuntimeError("the request was closed")
    here.record("refund", item, context, result=f"sent {item}")
    may_fail(here, "after")
    return f"sent {item}"


def seek_refund(context: ToolContext) -> Reconciled:
    """Ask what became of it, in a thread."""
    here = HERE.get()
    here.process.must_live()
    may_fail(here, "before")
    return _ask_outside(here, context)


async def order(item: str, context: ToolContext) -> str:
    """Have an effect as `charge` has it."""
    here = await enter("order", item, context)
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
    here = begin("ship", item, context)
    here.record("ship", item, context, result=f"sent {item}")
    may_fail(here, "after")
    return f"sent {item}"


def deliver(item: str, context: ToolContext) -> str:
    """Have an effect, in a thread that may end long after its time is over."""
    here = begin("deliver", item, context)
    here.record("deliver", item, context, result=f"sent {item}")
    may_fail(here, "after")
    return f"sent {item}"


async def linger(item: str, context: ToolContext) -> str:
    """Have an effect late, whoever says that the time is over."""
    here = begin("linger", item, context)
    clock = here.process.clock
    until = clock.elapsed() + here.weather.ending()
    while clock.elapsed() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await clock.sleep(until - clock.elapsed())
    here.record("linger", item, context, result=f"sent {item}")
    may_fail(here, "after")
    return f"sent {item}"


async def peek(item: str, context: ToolContext) -> str:
    """Look whether it has happened, and do it if not: what must not be done."""
    here = await enter("peek", item, context)
    await here.lag()
    if not _found(here, "peek", context):
        await here.lag()
        here.record("peek", item, context)
        await here.lag()
    return f"sent {item}"


async def enter(name: str, item: str, context: ToolContext) -> Here:
    """As `begin`, of a tool that may hang."""
    here = begin(name, item, context)
    if here.weather.failure("hung tool"):
        await here.process.clock.sleep(1.5 * TOOL_SECONDS)
    return here


async def _send(name: str, item: str, context: ToolContext) -> str:
    here = await enter(name, item, context)
    await here.lag()
    here.record(name, item, context, result=f"sent {item}")
    await here.lag()
    may_fail(here, "after")
    return f"sent {item}"


async def _once(name: str, item: str, context: ToolContext) -> str:
    here = await enter(name, item, context)

    async def send() -> str:
        may_fail(here, "before")
        await here.lag()
        here.record(name, item, context, result=f"sent {item}")
        await here.lag()
        may_fail(here, "after")
        return f"sent {item}"

    await here.lag()
    return str(await context.once(f"{name}:{item}", ONCE_SECONDS, send))


async def _request(here: Here, name: str, item: str, context: ToolContext) -> str:
    await here.lag()
    result = f"sent {item}"
    if not await here.request(name, item, context, name=_name(context), result=result):
        raise RuntimeError("the request was closed")
    await here.lag()
    may_fail(here, "after")
    return result


def _name(context: ToolContext) -> str:
    """One for each attempt, so that closing one leaves the next alone."""
    return f"{context.idempotency_key}, attempt {context.attempt}"


async def _begin_to_look() -> Here:
    here = HERE.get()
    here.process.must_live()
    may_fail(here, "before")
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


def begin(name: str, item: str, context: ToolContext) -> Here:
    """The tool's function was entered; sometimes it fails before it has done anything."""
    here = HERE.get()
    here.record(name, item, context, kind="run")
    may_fail(here, "before")
    return here


def may_fail(here: Here, when: str) -> None:
    """Sometimes the tool fails here, and sometimes it cannot tell."""
    if here.weather.failure("tool failure"):
        sure = here.weather.world.likely(0.5)
        raise (RuntimeError if sure else OutcomeUnknown)(f"simulated, {when} the effect")


def put(here: Here, name: str, item: str, context: ToolContext, *, result: str = "") -> str:
    """A sink that honours keys: one effect for each, for ever."""
    sink, key = here.outside.sink, context.idempotency_key
    if key in sink:
        here.record(name, item, context, kind="refused")
    else:
        told = result or f"stored {item}"
        here.record(name, item, context, result=told)
        sink[key] = told
    return sink[key]


def _found(here: Here, name: str, context: ToolContext) -> bool:
    return any(
        one.kind == "effect" and one.tool == name and one.key == context.idempotency_key
        for one in here.outside.effects
    )
