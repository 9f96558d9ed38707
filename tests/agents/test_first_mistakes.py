"""What a newcomer gets wrong is an error of ours that says what to write instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Checkpointer, ReActCognition, RunContext, Services, ToolCall, tool
from agentkit.core.contracts.errors import (
    AgentkitError,
    InvalidDecision,
    InvalidSpec,
    InvalidStoreUrl,
    OutcomeUnknown,
)
from agentkit.core.testing import FakeLLM, ScriptExhausted, Turn
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore


@tool(side_effecting=False)
async def look() -> str:
    """Look."""
    return "seen"


@tool(side_effecting=False, name="look")
async def look_elsewhere() -> str:
    """Look elsewhere."""
    return "seen elsewhere"


@tool(side_effecting=True)
async def send() -> str:
    """Send."""
    raise OutcomeUnknown("the server hung up")


def _loose(function: Any) -> Any:
    return function


MISTAKES: list[tuple[str, Callable[[], object], type[AgentkitError], str]] = [
    ("one tool", lambda: _loose(ReActCognition)(look), InvalidSpec, r"\[look\]"),
    ("a function", lambda: _loose(ReActCognition)(len), InvalidSpec, r"\[len\]"),
    ("same names", lambda: _agent(look, look_elsewhere), InvalidSpec, "two tools.*'look'"),
    ("no rounds", lambda: ReActCognition([look], max_iterations=0), InvalidSpec, "at least 1"),
    ("a class", lambda: _loose(Agent)("a", FakeLLM), InvalidSpec, "neither a model's name"),
    ("a number", lambda: _loose(Agent)("a", 3), InvalidSpec, "neither a model's name"),
    (
        "a cognition class",
        lambda: _loose(Agent)("a", FakeLLM("x"), cognition=ReActCognition),
        InvalidSpec,
        r"ReActCognition\(…\)",
    ),
    ("no model", lambda: Agent("a").run_sync("x"), InvalidSpec, "has no model; write"),
    (
        "a bare model",
        lambda: _loose(Services)(invoker=FakeLLM("x")),
        InvalidSpec,
        r"invoker=Invoker\(model\)",
    ),
    (
        "a bare store",
        lambda: _loose(Services)(checkpointer=InMemoryCheckpointStore()),
        InvalidSpec,
        r"checkpointer=Checkpointer\(store\)",
    ),
    ("an id", lambda: _loose(_agent().run_sync)("x", "r1"), InvalidSpec, "run_id="),
    (
        "a path",
        lambda: _loose(_agent().run_sync)("x", store=Path("runs.db")),
        InvalidStoreUrl,
        "sqlite:///relative.db",
    ),
]


@pytest.mark.parametrize(
    ("act", "error", "advice"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_a_mistake_is_told_with_what_to_write(
    act: Callable[[], object], error: type[AgentkitError], advice: str
) -> None:
    """No mistake of the list ends in an error of Python's own."""
    with pytest.raises(error, match=advice):
        act()


async def test_an_answer_without_its_question_is_refused() -> None:
    """Decisions are a mapping; a bare word is told so, and nothing is decided."""
    agent, context = _agent(send, calls="send"), _context()
    await agent.run("x", context)

    with pytest.raises(InvalidDecision, match="by question"):
        await _loose(agent.resume)("r1", "skip", context)
    result = await agent.resume("r1", {}, context)

    assert "suspended" == result.stop_reason


async def test_a_suspended_result_says_what_it_waits_for() -> None:
    """Its output is what the model said so far, which may be nothing; its message is not."""
    result = await _agent(send, calls="send").run("x", _context())

    assert result.suspended is not None
    (question,) = result.suspended.questions
    assert f"'r1' waits for decisions: {question.id} about send" in result.message


async def test_a_script_that_is_used_up_says_that_it_does_not_begin_again() -> None:
    """The second run through one scripted model is told what to make instead."""
    model = FakeLLM.script([Turn("once")])
    await Agent("a", model).run("x")

    with pytest.raises(ScriptExhausted, match=r"new FakeLLM, or FakeLLM\(fn\)"):
        await Agent("a", model).run("x")


async def test_a_fake_model_that_returns_no_turn_says_so() -> None:
    """A function that returns a text is the likeliest slip."""
    model = _loose(FakeLLM)(lambda _: "text")

    with pytest.raises(TypeError, match="returned str; it must return a Turn"):
        await Agent("a", model).run("x")


def _context() -> RunContext:
    services = Services(checkpointer=Checkpointer(InMemoryCheckpointStore()))
    return RunContext(correlation_id="r1", services=services)


def _agent(*tools: Any, calls: str = "") -> Agent:
    first = Turn(tool_calls=(ToolCall("1", calls),)) if calls else Turn("done")
    return Agent("a", FakeLLM(lambda _: first), cognition=ReActCognition(list(tools)))
