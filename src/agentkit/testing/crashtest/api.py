"""`crash_test`: the one way in, for the command line and for pytest."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, Unpack

from agentkit.agents import Agent
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.values import parse_arguments
from agentkit.core.testing import Turn
from agentkit.testing.crashtest.campaign import Options, Plan, Progress, run_plan
from agentkit.testing.crashtest.report import CrashReport
from agentkit.testing.crashtest.script import ScriptTurn, read_script, scripted
from agentkit.testing.crashtest.target import Target, model_for
from agentkit.testing.crashtest.worker import Setup
from agentkit.tools import ArgumentsInvalid

__all__ = ["ANSWERS", "DEFAULT_TASK", "Model", "Subject", "crash_test", "target_of"]

ANSWERS = ("run_again", "skip", "failed")
"""What may be answered about a call of which nobody saw the end."""

DEFAULT_TASK = "Do your work."
"""The task, where the model goes by a script and none is given."""

Subject: TypeAlias = "Agent | Callable[[], Agent] | str"
"""An agent or a function that makes one, at the top of a module; or where it is,
`package.module:variable`."""

Model: TypeAlias = "Sequence[Turn] | Sequence[ScriptTurn] | str | Path | None"
"""The model's answers: turns, or the JSON file with them, or those of a recorded run (as
`ScriptTurn`); `None`: the agent's own fake."""


def crash_test(
    subject: Subject,
    *,
    task: str = DEFAULT_TASK,
    model: Model = None,
    reset: str | Callable[[], object] | None = None,
    answer: str = "run_again",
    progress: Progress = lambda *_: None,
    **options: Unpack[Options],
) -> CrashReport:
    """Kill workers of an agent with SIGKILL at every border of a run, and judge what is left.

    Args:
        subject: see `Subject`. Workers are new processes and import it by its name.
        task: what the agent is to do.
        model: see `Model`.
        reset: called before each run, in the run's first worker: sets the outside world back. A
            function at the top of a module, or where it is.
        answer: of the question about a call of which nobody saw the end; one of `ANSWERS`.
        progress: told after each run: (done, of).
        options: where and how to kill, see `Options`.

    Raises:
        InvalidSpec: something that was given is not there or does not fit, or the run that nobody
            kills does not finish; the message says what to do.
    """
    target = target_of(subject)
    agent = subject if isinstance(subject, Agent) else target.agent()
    turns = _turns(model, agent)
    model_for(agent, turns)  # refuses a real model before anything is started
    if answer not in ANSWERS:
        raise InvalidSpec(f"{answer!r} is no answer; choose one of {', '.join(ANSWERS)}")
    undo = None if reset is None else target_of(reset)
    plan = Plan(setup=Setup(target, task, turns, undo, answer), **options)
    return run_plan(plan, agent, progress=progress)


def target_of(thing: object) -> Target:
    """Where a new process finds an agent or a function of this one.

    Raises:
        InvalidSpec: it is not at the top of a module.
    """
    if isinstance(thing, str):
        return Target.parse(thing)
    if callable(thing) and not isinstance(thing, Agent):
        module, variable = str(thing.__module__), str(getattr(thing, "__qualname__", ""))
        places = [(module, variable)]
    else:
        places = [
            (name, variable)
            for name, module in list(sys.modules.items())
            for variable, value in list(getattr(module, "__dict__", {}).items())
            if value is thing
        ]
    for name, variable in places:
        if variable.isidentifier() and getattr(sys.modules.get(name), variable, None) is thing:
            file = str(getattr(sys.modules[name], "__file__", None) or "")
            return Target(Path(file).stem if name == "__main__" else name, variable, file)
    raise InvalidSpec(
        f"{_described(thing)} is not a variable at the top of a module, so the processes that are "
        "killed cannot import it: move it there, or give a function at the top of a module that "
        "makes it"
    )


def _described(thing: object) -> str:
    if isinstance(thing, Agent):
        return f"agent {thing.name!r}"
    return f"function {getattr(thing, '__qualname__', thing)!r}"


def _turns(model: Model, agent: Agent) -> tuple[ScriptTurn, ...] | None:
    """The script; what somebody wrote is checked, what a model once answered is taken as it is."""
    if model is None:
        return None
    if isinstance(model, str | Path):
        return _checked(read_script(Path(model)), agent)
    given: list[object] = list(model)
    recorded = [turn for turn in given if isinstance(turn, ScriptTurn)]
    if given and len(recorded) == len(given):
        return tuple(recorded)
    for turn in given:
        if not isinstance(turn, Turn):
            raise InvalidSpec(f"the model's turns are Turn(…) each, or a file's name; not {turn!r}")
    return _checked(scripted(turn for turn in given if isinstance(turn, Turn)), agent)


def _checked(turns: tuple[ScriptTurn, ...], agent: Agent) -> tuple[ScriptTurn, ...]:
    """A slip in a script should be told as one, and not as what the agent makes of it."""
    tools = {tool.name: tool for tool in agent.cognition.tools}
    for number, turn in enumerate(turns, 1):
        for call in turn.tool_calls:
            where = f"turn {number} of the model's answers calls {call.name!r}"
            if call.name not in tools:
                close = difflib.get_close_matches(call.name, tools, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                known = ", ".join(tools) or "none"
                raise InvalidSpec(f"{where}, and agent {agent.name!r} has {known}{hint}")
            given = call.arguments
            arguments = parse_arguments(given) if isinstance(given, str) else given
            try:
                if arguments is None:
                    raise InvalidSpec(f"{where} with arguments that are no JSON object: {given!r}")
                tools[call.name].bind(arguments)
            except ArgumentsInvalid as exc:
                raise InvalidSpec(f"{where} with wrong arguments: {exc}") from exc
    return turns
