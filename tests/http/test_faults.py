"""A provider that fails in the middle of a run, in every way that we know of."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from agentkit.agents import Agent, AgentResult
from agentkit.agents.cognition import ReActCognition
from agentkit.core.contracts import entries as e
from agentkit.core.contracts.errors import RunParked
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.runtime import RetryPolicy, RunContext
from agentkit.core.testing import FakeClock
from agentkit.models.providers import frontiers
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from agentkit.testing.crash import ForkServer
from agentkit.testing.invariants import report
from agentkit.testing.provider import Answer, CallSpec, Fault, StrictProvider
from agentkit.tools import Tool, tool
from tests.agents.kit import bodies_of
from tests.http.campaign import HttpCampaign
from tests.http.kit import APIS, KEY, RUN, TASK, Api, adapter, asleep, context, hurried, url_of

both = pytest.mark.parametrize("api", APIS)


class Case(NamedTuple):
    """What happens, what it is called, whether an answer may have been paid for, and how long the
    provider may be silent.
    """

    fault: Fault
    kind: str
    paid: bool = False
    stall_seconds: float = 120.0
    timeout_seconds: float = 60.0


CASES = [
    Case(Fault.rate_limit(retry_after=1), "rate_limited"),
    Case(Fault.overloaded(), "overloaded"),
    Case(Fault.error(500), "server", paid=True),
    Case(Fault.error(503), "server"),
    Case(Fault.html(), "server", paid=True),
    Case(Fault.cut_before_headers(), "network", paid=True),
    Case(Fault.stall(), "timeout", paid=True, stall_seconds=1.5),
    Case(Fault.stall_stream(), "timeout", paid=True, stall_seconds=1.5),
    Case(Fault.cut_stream(), "truncated", paid=True),
    Case(Fault.end_stream(), "truncated", paid=True),
    Case(Fault.stream_error(), "overloaded", paid=True),
    Case(Fault.endless_line(), "timeout", paid=True, timeout_seconds=2.5),
]


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    """Asks for one call in each of two turns, then tells."""
    with StrictProvider(
        [
            Answer(text="First.", tool_calls=[CallSpec("look", {"item": "a"})]),
            Answer(text="Then.", tool_calls=[CallSpec("look", {"item": "b"})]),
            Answer(text="I have seen enough of both."),
        ]
    ) as provider:
        yield provider


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[JournalPort]:
    """A store on disk."""
    store = SqliteCheckpointStore(tmp_path / "runs.db")
    yield store
    await store.aclose()


class Looks:
    """An agent with one tool, and what the tool was asked for."""

    def __init__(self) -> None:
        self.items: list[str] = []

    def agent(self) -> Agent:
        """The agent."""
        return Agent("looker", prompt="Look.", cognition=ReActCognition([self._tool()]))

    def _tool(self) -> Tool:
        @tool(side_effecting=False)
        async def look(item: str) -> str:
            self.items.append(item)
            return f"{item} is there"

        return look


@both
@pytest.mark.parametrize("case", CASES, ids=[f"{c.fault.kind}-{c.fault.status}" for c in CASES])
async def test_a_fault_costs_one_attempt_and_the_run_goes_on(
    api: Api, case: Case, provider: StrictProvider, store: JournalPort
) -> None:
    """The second answer fails once: one request more than answers, one failure in the journal,
    no tool twice, and what may be lost is counted.
    """
    provider.fail_next(replace(case.fault, turn=1))
    looks, clock = Looks(), FakeClock()
    llm = adapter(api, url_of(api, provider), stall_seconds=case.stall_seconds)
    ctx = context(llm, store, clock=clock, timeout_seconds=case.timeout_seconds)

    result = await hurried(clock, _streamed(looks.agent(), ctx))

    kind = "server" if (api, case.kind) == ("openai", "overloaded") else case.kind
    failed = await bodies_of(store, e.ModelFailed, RUN)
    assert [(2, 1, kind, case.paid)] == [(f.turn, f.attempt, f.kind, f.unknown) for f in failed]
    assert "I have seen enough of both." == result.output
    assert (3, int(case.paid)) == (result.usage.requests, result.usage.unknown)
    assert ["a", "b"] == looks.items
    assert [0, 1, 1, 2] == [call.turn for call in provider.calls]
    assert provider.calls[1].digest == provider.calls[2].digest
    assert [] == provider.refusals


async def _streamed(agent: Agent, ctx: RunContext) -> AgentResult:
    result = [event.result async for event in agent.stream(TASK, ctx)][-1]
    assert result is not None
    return result


async def test_a_stream_of_messages_without_stop_reason_is_no_answer(
    provider: StrictProvider, store: JournalPort
) -> None:
    """The real service always gives one, so the stream was cut: it is asked for again."""
    provider.fail_next(Fault.no_stop_reason(turn=1))
    clock = FakeClock()
    ctx = context(adapter("anthropic", provider.anthropic_url), store, clock=clock)

    result = await hurried(clock, _streamed(Looks().agent(), ctx))

    assert ("I have seen enough of both.", 1) == (result.output, result.usage.unknown)
    assert [0, 1, 1, 2] == [call.turn for call in provider.calls]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_gives_no_finish_reason_parks_and_the_option_goes_on(
    provider: StrictProvider, store: JournalPort, *, stream: bool
) -> None:
    """A compatible server that ends in order without one may never send any: nothing is recorded
    as an answer, and the message names the option that accepts it.
    """
    provider.always(Fault.no_stop_reason())
    looks, url = Looks(), provider.openai_url
    ctx = context(adapter("openai", url), store)
    if stream:
        parked = (await _streamed(looks.agent(), ctx)).message
    else:
        with pytest.raises(RunParked) as error:
            await looks.agent().run(TASK, ctx)
        parked = str(error.value)
    answers = await bodies_of(store, e.ModelAnswered, RUN)
    lenient = frontiers.openai(
        api_key=KEY, base_url=url, model="gpt", accept_missing_finish_reason=True
    )
    result = await looks.agent().resume(RUN, {}, context(lenient, store))

    assert "accept_missing_finish_reason" in parked
    assert [] == answers
    assert "I have seen enough of both." == result.output
    assert ["a", "b"] == looks.items


@both
async def test_f134_retry_after_is_obeyed_to_the_moment(
    api: Api, provider: StrictProvider, store: JournalPort
) -> None:
    """`Retry-After: 2`: nobody asks again before two seconds have passed, and then once;
    `retry-after-ms` goes before it.
    """
    provider.fail_next(
        Fault.rate_limit(retry_after=2), Fault.rate_limit(retry_after=9, retry_after_ms=500)
    )
    clock = FakeClock()
    ctx = context(adapter(api, url_of(api, provider)), store, clock=clock)
    task = asyncio.create_task(Looks().agent().run(TASK, ctx))
    asked = []
    for before, after in ((1.99, 0.3), (0.49, 0.1)):
        await asleep(clock, task)
        clock.advance(before)
        await asyncio.wait({task}, timeout=0.05)
        asked.append(len(provider.calls))
        clock.advance(after)
        while len(provider.calls) == asked[-1]:
            await asyncio.wait({task}, timeout=0.01)
    result = await hurried(clock, _done(task))

    assert "I have seen enough of both." == result
    assert [1, 2] == asked
    assert 5 == len(provider.calls)


async def _done(task: "asyncio.Task[object]") -> str:
    return str(getattr(await task, "output", None))


@both
@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize(
    "fault",
    [
        Fault.error(503),
        Fault.rate_limit(retry_after=2, should_retry=True),
        Fault.cut_before_headers(),
    ],
    ids=["503", "429", "cut"],
)
async def test_f134_attempts_are_requests(
    api: Api, attempts: int, fault: Fault, provider: StrictProvider, store: JournalPort
) -> None:
    """No layer below or beside ours tries again: as many requests as the policy has attempts."""
    provider.always(replace(fault, turn=1))
    clock, looks = FakeClock(), Looks()
    llm = adapter(api, url_of(api, provider))
    ctx = context(llm, store, clock=clock, retry=RetryPolicy(attempts=attempts))

    with pytest.raises(RunParked) as parked:
        await hurried(clock, looks.agent().run(TASK, ctx))

    assert "retries_spent" == parked.value.reason
    assert 1 + attempts == len(provider.calls)
    provider.always(None)
    result = await looks.agent().resume(RUN, {}, ctx)
    assert "I have seen enough of both." == result.output
    assert 1 + attempts + 2 == len(provider.calls)
    assert ["a", "b"] == looks.items


@both
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.error(401), "auth"),
        (Fault.error(403), "auth"),
        (Fault.error(404), "not_found"),
        (Fault.error(400), "invalid_request"),
        (Fault.error(413), "invalid_request"),
        (Fault.spend_limit(), "quota"),
        (Fault.error(402, message="Your credit balance is too low."), "quota"),
        (Fault.error(400, message="prompt is too long: 9 tokens > 8 maximum"), "context_length"),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else value,
)
async def test_what_no_retry_mends_parks_at_once_and_goes_on_after_mending(
    api: Api, fault: Fault, reason: str, provider: StrictProvider, store: JournalPort
) -> None:
    """One request and no more, also when the run is called again; `resume` asks again and goes on,
    without repeating what was done before.
    """
    provider.always(replace(fault, turn=1))
    looks = Looks()
    ctx = context(adapter(api, url_of(api, provider)), store)

    for _ in range(2):
        with pytest.raises(RunParked) as parked:
            await looks.agent().run(TASK, ctx)
        assert reason == parked.value.reason
    assert 2 == len(provider.calls)
    with pytest.raises(RunParked):
        await looks.agent().resume(RUN, {}, ctx)
    assert 3 == len(provider.calls)
    provider.always(None)
    result = await looks.agent().resume(RUN, {}, ctx)

    assert "I have seen enough of both." == result.output
    assert 5 == len(provider.calls)
    assert ["a", "b"] == looks.items
    assert 0 == result.usage.unknown


@both
async def test_a_wrong_key_parks_and_the_right_one_goes_on(
    api: Api, provider: StrictProvider, store: JournalPort
) -> None:
    """The provider itself refuses the key; the run is not lost by it."""
    url, looks = url_of(api, provider), Looks()

    with pytest.raises(RunParked, match="API key") as parked:
        await looks.agent().run(TASK, context(adapter(api, url, key="sk-old"), store))
    result = await looks.agent().resume(RUN, {}, context(adapter(api, url), store))

    assert ("auth", "I have seen enough of both.") == (parked.value.reason, result.output)
    assert ["bad_key"] == [call.refusal.rule for call in provider.refusals if call.refusal]
    assert 4 == len(provider.calls)


@both
def test_f134_the_count_of_attempts_survives_a_kill(
    server: ForkServer, tmp_path: Path, api: Api
) -> None:
    """Each worker is killed as soon as its failed attempt is on the disk, so each makes one; the
    last allowed attempt is the last one, whoever makes it.
    """
    campaign = HttpCampaign(server, tmp_path, api=api)
    with campaign.ordeal() as ordeal:
        ordeal.provider.always(Fault.error(503, turn=0))
        ends = [ordeal.worker("append:after#2").how for _ in range(5)]
        requests = len(ordeal.provider.calls)
        state = ordeal.state()
        ordeal.provider.always(None)
        again = ordeal.worker()

    attempts = RetryPolicy().attempts
    assert (["killed"] * (attempts - 1) + ["completed"], attempts) == (ends, requests)
    assert state.parked is not None
    assert "retries_spent" == state.parked.reason
    assert "completed" == again.how
    assert attempts == len(ordeal.provider.calls)
    assert not campaign.violations, report(campaign.violations)
