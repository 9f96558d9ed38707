"""Workers of the crash scenario whose model is a real SDK that talks HTTP to a provider."""

import asyncio
import os
from pathlib import Path

import msgspec

from agentkit.agents import Agent, AgentEvent
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts.types import JSONObject
from agentkit.core.runtime import Invoker, RetryPolicy, RunContext, Services
from agentkit.state.checkpoints import Checkpointer
from agentkit.testing.crash import CrashingLLM, CrashingStore, CrashPlan, scenario
from agentkit.testing.crash.scenario import TASK, Folder, Order, make_tools, promise
from tests.http.kit import NO_CERTIFICATES, Api, adapter, load_sdks
from tests.http.odd_tools import odd_tools

WORK = "tests.http.workers:work"


class HttpOrder(Order, frozen=True):
    """What one worker is told, and where its model is.

    Args:
        api: which SDK.
        url: where the provider listens.
        stream: whether answers come as streams.
        prompt: the agent's system prompt, as this worker has it.
        odd: whether the agent has the odd tools too.
        thinking: whether thinking is asked for, where the API has it.
    """

    api: Api = "anthropic"
    url: str = ""
    stream: bool = True
    prompt: str = "Work."
    odd: bool = False
    thinking: bool = True


def warm_up() -> None:
    """Load, before any worker is forked, whatever takes time."""
    os.environ |= NO_CERTIFICATES
    scenario.warm_up()
    load_sdks()


def work(argument: JSONObject) -> None:
    """One worker's life, as the fork server starts it."""
    asyncio.run(drive(msgspec.convert(argument, HttpOrder)))


async def drive(order: HttpOrder) -> None:
    """Drive the run as far as it goes, writing each promise down as it is made."""
    folder = Folder(Path(order.folder))
    plan = CrashPlan(order.at, how=order.how, log=folder.borders)
    store = CrashingStore(folder.store(), plan)
    model = adapter(order.api, order.url, thinking=order.thinking)
    services = Services(
        invoker=Invoker(
            CrashingLLM(model, plan, folder.answers, run=order.run),
            retry=RetryPolicy(base_seconds=0.0),
        ),
        checkpointer=Checkpointer(port=store),
    )
    context = RunContext(correlation_id=order.run, services=services)
    tools = make_tools(plan, folder.effects)
    if order.odd:
        tools += odd_tools(plan, folder.effects)
    agent = Agent("worker", prompt=order.prompt, cognition=ReActCognition(tools))
    if order.stream:
        stream = (
            agent.resume_stream(order.run, order.decisions, context)
            if order.action == "resume"
            else agent.stream(TASK, context)
        )
        async for event in stream:
            folder.promises.write(promise(order.run, event))
    else:
        result = (
            await agent.resume(order.run, order.decisions, context)
            if order.action == "resume"
            else await agent.run(TASK, context)
        )
        folder.promises.write(promise(order.run, AgentEvent("final", result=result)))
    await store.aclose()
