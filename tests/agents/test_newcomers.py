"""Running an agent without building a context: store URLs, private stores, model objects."""

import sqlite3
import warnings
from pathlib import Path

import pytest

from agentkit.agents import Agent, setting
from agentkit.agents.setting import VolatileStoreWarning
from agentkit.core.contracts.errors import (
    InvalidId,
    InvalidSpec,
    InvalidStoreUrl,
    MissingKey,
    RunNotFound,
)
from agentkit.core.runtime import Invoker, RunContext, Services
from agentkit.core.testing import FakeLLM
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, open_store
from agentkit.state.checkpoints.places import missing_file
from agentkit.tools import Tool, tool
from tests.agents.kit import RUN, TASK, agent_of, call, calls, context, events_of, then


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENTKIT_STORE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(setting, "_warned", set())


async def test_a_store_url_is_all_that_a_durable_run_needs(tmp_path: Path) -> None:
    """The second call finds the finished run in the file and asks no model."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    first = await Agent("a", FakeLLM("answer")).run(TASK, run_id="r1", store=url)
    other = FakeLLM("never")

    again = await Agent("a", other).run(TASK, run_id="r1", store=url)

    # The model's origin is part of the definition and did not change.
    assert (first, "answer", []) == (again, again.output, other.requests)


async def test_the_environment_may_name_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`AGENTKIT_STORE_URL` holds where neither a context nor a URL says otherwise."""
    monkeypatch.setenv("AGENTKIT_STORE_URL", f"sqlite:///{tmp_path / 'env.db'}")

    await Agent("a", FakeLLM("answer")).run(TASK, run_id="r1")

    store = open_store(f"sqlite:///{tmp_path / 'env.db'}")
    assert ["r1"] == [run.run for run in (await store.list_runs())[0]]
    await store.aclose()


async def test_resume_works_from_a_store_url(tmp_path: Path) -> None:
    """Nothing but URL and id is needed; an unknown id is `RunNotFound`."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = Agent("a", FakeLLM("answer"))
    first = await agent.run(TASK, run_id="r1", store=url)

    assert first == await agent.resume("r1", store=url)
    with pytest.raises(RunNotFound):
        await agent.resume("r2", store=url)


def test_run_sync_takes_a_store_url(tmp_path: Path) -> None:
    """The shortest program: no loop, no context."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    result = Agent("a", FakeLLM("answer")).run_sync(TASK, run_id="r1", store=url)

    assert "answer" == result.output
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.parametrize("url", ["", "runs", "mysql://x", "sqlite:/x", "://"])
async def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    """Before the model is asked; an empty one is a slip too, not a wish for no store."""
    llm = FakeLLM("x")

    with pytest.raises(InvalidStoreUrl):
        await Agent("a", llm).run(TASK, run_id="r1", store=url)

    assert [] == llm.requests


async def test_a_context_and_a_store_url_exclude_each_other() -> None:
    """Which of the two is meant must not be guessed."""
    ctx = context(FakeLLM("x"), InMemoryCheckpointStore())

    with pytest.raises(InvalidSpec, match="either a context or store=…, not both"):
        await agent_of().run(TASK, ctx, store="memory://")


@pytest.mark.parametrize("model", ["openai:some-model", "anthropic:some-model"])
async def test_a_missing_key_is_told_before_anything_is_written(model: str, tmp_path: Path) -> None:
    """Where there was no store there is none, and where there was one the run is not in it."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    with pytest.raises(MissingKey):
        await Agent("a", model).run(TASK, run_id="r1", store=url)

    store = open_store(url)
    assert missing_file(store) is not None
    await store.head("r1")
    with pytest.raises(MissingKey):
        await Agent("a", model).run(TASK, run_id="r1", store=url)
    assert ([], None) == ((await store.list_runs())[0], await store.head("r1"))
    await store.aclose()


async def test_services_without_a_checkpointer_have_a_store_of_their_own() -> None:
    """Two contexts of one `Services` see the same runs, those of another do not."""
    services, others = (Services(invoker=Invoker(llm=FakeLLM("x"))) for _ in range(2))
    agent = agent_of()
    first = await agent.run(TASK, RunContext(correlation_id=RUN, services=services))

    again = await agent.resume(RUN, {}, RunContext(correlation_id=RUN, services=services))
    with pytest.raises(RunNotFound):
        await agent.resume(RUN, {}, RunContext(correlation_id=RUN, services=others))

    assert first == again


def _sender(*, side_effecting: bool) -> Tool:
    @tool(side_effecting=side_effecting)
    async def send() -> str:
        return "sent"

    return send


async def test_effects_without_a_durable_store_are_warned_of_once() -> None:
    """After a crash nobody would know what was done."""
    services = Services(invoker=Invoker(llm=then(calls(call("send")))))
    agent = agent_of(_sender(side_effecting=True))

    with pytest.warns(VolatileStoreWarning, match="send acts on the world"):
        await agent.run(TASK, RunContext(correlation_id="r1", services=services))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await agent.run(TASK, RunContext(correlation_id="r2", services=services))

    assert "done" == result.output


async def test_reads_without_a_durable_store_are_nobodys_business() -> None:
    """A run that can be done again from the start needs no warning."""
    services = Services(invoker=Invoker(llm=then(calls(call("send")))))
    agent = agent_of(_sender(side_effecting=False))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await agent.run(TASK, RunContext(correlation_id=RUN, services=services))

    assert "done" == result.output


# --- ids ------------------------------------------------------------------------------------------

BAD_IDS = ["", "x" * 513, "a\nb", "a\x00b", "a\x1b[31mb", "a\x7fb", "a\u2028b", "a\ud800b", "\x85"]


@pytest.mark.parametrize("run_id", BAD_IDS)
async def test_a_bad_run_id_is_refused_and_nothing_is_written(run_id: str, tmp_path: Path) -> None:
    """By the context, by `run` and by `resume` alike; no file is made."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = Agent("a", FakeLLM("x"))

    with pytest.raises(InvalidId):
        RunContext(correlation_id=run_id)
    with pytest.raises(InvalidId):
        await agent.run(TASK, run_id=run_id, store=url)
    with pytest.raises(InvalidId):
        await agent.resume(run_id, store=url)

    assert set() == _files(tmp_path)


@pytest.mark.parametrize("name", BAD_IDS)
def test_a_bad_agent_name_is_refused_at_once(name: str) -> None:
    """It could not name a slot."""
    with pytest.raises(InvalidId):
        Agent(name, FakeLLM("x"))


HOSTILE = [
    "../../etc/passwd",
    "/absolute",
    "a:b",
    "a:agent:worker",
    "a:plan",
    "a:done",
    "{}",
    "{a}b",
    "*",
    "%",
    "%25",
    "a%3Aagent%3Aworker",
    "#1",
    "' OR 1=1 --",
    "a b",
    ".",
    "..",
    "\uff41",
    "\u0430",
    "a",
    "🦑" * 128,
    "x" * 512,
]


@pytest.mark.parametrize("memory", [True, False])
async def test_f117_hostile_ids_are_ordinary_ids(memory: bool, tmp_path: Path) -> None:
    """Each names a run of its own, as run id and as agent name, whatever it looks like.

    Nothing is written outside the one file, and no two slots are one.
    """
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    store = InMemoryCheckpointStore() if memory else open_store(url)
    for number, name in enumerate(HOSTILE):
        llm = FakeLLM(name)
        await agent_of(name=name).run(TASK, context(llm, store, run_id=f"run {number}"))
        await agent_of(name=name).run(TASK, context(llm, store, run_id=name))

    answers = {}
    for run_id in HOSTILE:
        again = context(FakeLLM.script([]), store, run_id=run_id)
        answers[run_id] = (await agent_of(name=run_id).run(TASK, again)).output

    assert {run_id: run_id for run_id in HOSTILE} == answers
    assert 2 * len(HOSTILE) == len((await store.list_runs())[0])
    assert _files(tmp_path) <= {"runs.db", "runs.db-wal", "runs.db-shm"}
    await store.aclose()


async def test_f117_a_run_that_looks_like_a_slot_is_not_that_slot() -> None:
    """Run `a:agent:b` beside agent `b` of run `a`: two journals, two sets of versions."""

    @tool(side_effecting=False)
    async def look() -> str:
        return "seen"

    store, slot = InMemoryCheckpointStore(), "a:agent:b"
    agent = agent_of(look, name="b")
    for run_id, steps in (("a", 1), (slot, 2)):
        turns = [calls(call("look"))] * steps
        stream = agent.stream(TASK, context(then(turns), store, run_id=run_id))
        async for event in stream:
            if event.type == "step" and event.text == f"iteration:{steps}":
                break
        await stream.aclose()

    versions = {
        run_id: await store.list_versions(agent.cognition.checkpoint_slot(run_id, "b"))  # type: ignore[attr-defined]  # a tool loop
        for run_id in ("a", slot)
    }

    assert {"a": [1], slot: [1, 2]} == versions


async def test_a_stream_closes_the_store_that_was_opened_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store from the environment is closed when the stream has ended, or was left."""
    from agentkit.state.checkpoints.adapters.sqlite import SqliteCheckpointStore

    closed: list[str] = []
    close = SqliteCheckpointStore.aclose

    async def aclose(self: SqliteCheckpointStore) -> None:
        closed.append(self.location)
        await close(self)

    monkeypatch.setattr(SqliteCheckpointStore, "aclose", aclose)
    monkeypatch.setenv("AGENTKIT_STORE_URL", f"sqlite:///{tmp_path / 'env.db'}")
    services = Services(invoker=Invoker(llm=FakeLLM("x")))

    await events_of(agent_of().stream(TASK, RunContext(correlation_id="r1", services=services)))
    left = agent_of().stream(TASK, RunContext(correlation_id="r2", services=services))
    await anext(left)
    await left.aclose()

    assert 2 == len(closed)


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
