"""Which agent is tested, and how a process that begins anew finds it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from agentkit.agents import Agent
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.model import LLMPort
from agentkit.testing.crashtest.script import ScriptedModel, ScriptTurn, script_of

__all__ = ["Target", "model_for"]


class Target(msgspec.Struct, frozen=True):
    """Something in a module: an agent, a function that makes one, or a function to call.

    Args:
        module: the module's dotted name.
        variable: the name in it, with dots.
        file: the module's file, for one that cannot be found by its name.
    """

    module: str
    variable: str
    file: str = ""

    @classmethod
    def parse(cls, reference: str) -> Target:
        """`package.module:variable`.

        Raises:
            InvalidSpec: it does not look like one.
        """
        module, colon, variable = reference.partition(":")
        if not colon or not module or not variable:
            raise InvalidSpec(f"reference {reference!r} must look like package.module:variable")
        return cls(module, variable)

    @property
    def reference(self) -> str:
        """`package.module:variable`."""
        return f"{self.module}:{self.variable}"

    def value(self) -> object:
        """Import it; the current folder comes first on the path.

        Raises:
            InvalidSpec: it does not import, or names nothing.
        """
        value: object = self._module()
        for part in self.variable.split("."):
            if not hasattr(value, part):
                raise InvalidSpec(f"{self.reference!r}: {self.module!r} has no {self.variable!r}")
            value = getattr(value, part)
        return value

    def agent(self) -> Agent:
        """The agent, or what a function without arguments makes.

        Raises:
            InvalidSpec: as for `value`, or it is no agent.
        """
        value = self.value()
        if not isinstance(value, Agent) and callable(value):
            try:
                value = value()
            except Exception as exc:
                raise InvalidSpec(f"{self.reference!r} was called and raised {exc!r}") from exc
        if not isinstance(value, Agent):
            kind = type(value).__name__
            raise InvalidSpec(
                f"{self.reference!r} is of type {kind!r}; it must be an agentkit.Agent, or a "
                "function without arguments that makes one"
            )
        value.reference = self.reference
        return value

    def _module(self) -> ModuleType:
        loaded = sys.modules.get(self.module)
        if loaded is not None:
            return loaded
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        try:
            return self._imported()
        except (Exception, SystemExit) as exc:
            where = _line_of(exc)
            raise InvalidSpec(
                f"{self.reference!r}: cannot import {self.module!r}: {exc!r}{where}"
            ) from exc

    def _imported(self) -> ModuleType:
        if not self.file:
            return importlib.import_module(self.module)
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError:
            return _from_file(self.module, self.file)
        same = Path(module.__file__ or "").resolve() == Path(self.file).resolve()
        return module if same else _from_file(self.module, self.file)


def model_for(agent: Agent, turns: Sequence[ScriptTurn] | None) -> LLMPort:
    """What answers in place of the agent's real model.

    Raises:
        InvalidSpec: there is no script, and the agent's own model is a real one.
    """
    turns = script_of(agent.llm) if turns is None else turns
    if turns is not None:
        return ScriptedModel(turns)
    if agent.llm is None or type(agent.llm).__module__.startswith("agentkit.models."):
        own = f"the real model {agent.model!r}" if agent.model else "no model of its own"
        raise InvalidSpec(
            f"agent {agent.name!r} has {own}, and a crash test asks for an answer "
            "hundreds of times. Give it answers: a script (--model script.json, or model=[Turn(…)] "
            "in a test), a recorded run (--record RUN), or a FakeLLM as the agent's own model"
        )
    return agent.llm


def _from_file(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _line_of(error: BaseException) -> str:
    """Where in the user's code it was raised: the innermost line outside the import machinery."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and "importlib" not in file and file != __file__:
            place = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return place
