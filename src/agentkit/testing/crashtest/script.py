"""A model that answers from a script, or with the answers of a recorded run.

Each process of a crash test begins anew, so which turn is due is read from the transcript (how
many answers it holds already) and never from a counter of the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import msgspec

from agentkit.core.contracts.entries import Entry, ModelAnswered
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.model import LLMPort, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import JSON, ToolCall
from agentkit.core.testing import FakeLLM, Turn

__all__ = [
    "ScriptCall",
    "ScriptTurn",
    "ScriptedModel",
    "read_script",
    "recorded",
    "script_of",
    "scripted",
]

_EXAMPLE = (
    '[{"content": "I look.", "tool_calls": [{"name": "look", "arguments": {"item": "a"}}]}, '
    '{"content": "Done."}]'
)


class ScriptCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call of a scripted turn.

    Args:
        name: the tool's.
        arguments: an object; or the model's own text, which need not be valid JSON.
        id: the provider's label of the call; made from its place where it is left out.
    """

    name: str
    arguments: dict[str, JSON] | str = {}
    id: str = ""


class ScriptTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One answer of the model: its text, its calls, or both."""

    content: str = ""
    tool_calls: tuple[ScriptCall, ...] = ()


class ScriptedModel:
    """Answers the n-th turn to a transcript with n - 1 answers. Implements `LLMPort`.

    Args:
        turns: the answers, in order.
    """

    origin = "script"

    def __init__(self, turns: Sequence[ScriptTurn]) -> None:
        self._turns = tuple(turns)

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """See `LLMPort.attempt`.

        Raises:
            InvalidSpec: the transcript holds as many answers as the script has turns.
        """
        number = sum(message.role == "assistant" for message in request.messages)
        if number >= len(self._turns):
            raise InvalidSpec(
                f"the model's script has {len(self._turns)} turns and was asked for another one: "
                "its last turn must have no tool_calls, so that the run ends there"
            )
        turn = _playable(self._turns[number], number)
        async for item in FakeLLM(lambda _: turn, model="script").attempt(request):
            yield item


def read_script(path: Path) -> tuple[ScriptTurn, ...]:
    """Read a script from a JSON file.

    Raises:
        InvalidSpec: there is no such file, or it is no script; the message says where and why.
    """
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise InvalidSpec(f"model script {str(path)!r} cannot be read: {exc.strerror}") from exc
    try:
        turns = msgspec.json.decode(data, type=tuple[ScriptTurn, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidSpec(
            f"model script {str(path)!r}: {exc}. A script is a list of turns: {_EXAMPLE}"
        ) from exc
    return _checked(turns, f"model script {str(path)!r}")


def scripted(turns: Iterable[Turn]) -> tuple[ScriptTurn, ...]:
    """A script made of the turns of a `FakeLLM`.

    Raises:
        InvalidSpec: a turn has what a script cannot tell: an error, a stop reason, native content.
    """
    made = []
    for number, turn in enumerate(turns, 1):
        if turn.error is not None or turn.native is not None or turn.stop is not None:
            raise InvalidSpec(
                f"turn {number}: a crash test's script has content and tool_calls alone; for "
                "anything else give the agent FakeLLM(fn), with fn at the top of its module"
            )
        calls = tuple(ScriptCall(call.name, call.arguments, call.id) for call in turn.tool_calls)
        made.append(ScriptTurn(turn.content, calls))
    return _checked(tuple(made), "the model's turns")


def recorded(entries: Iterable[Entry], *, run_id: str) -> tuple[ScriptTurn, ...]:
    """The answers of a recorded run, word for word, as a script.

    Raises:
        InvalidSpec: the run has no complete answer to end with.
    """
    made = []
    for entry in entries:
        if isinstance(entry.body, ModelAnswered):
            calls = tuple(ScriptCall(c.name, c.arguments, c.id) for c in entry.body.calls)
            made.append(ScriptTurn(entry.body.text, calls))
    return _checked(tuple(made), f"the answers of run {run_id!r}")


def script_of(llm: LLMPort | None) -> tuple[ScriptTurn, ...] | None:
    """The script that an agent's own model goes by, where it is a `FakeLLM.script`."""
    turns = llm.turns if isinstance(llm, FakeLLM) else None
    return None if turns is None else scripted(turns)


def _checked(turns: tuple[ScriptTurn, ...], what: str) -> tuple[ScriptTurn, ...]:
    if not turns:
        raise InvalidSpec(f"{what}: there is no turn. A script is a list of turns: {_EXAMPLE}")
    early = next((n for n, turn in enumerate(turns[:-1], 1) if not turn.tool_calls), None)
    if early is not None:
        raise InvalidSpec(
            f"{what}: turn {early} of {len(turns)} calls no tool, so the run ends there and the "
            "turns after it are never asked for"
        )
    if turns[-1].tool_calls:
        raise InvalidSpec(
            f"{what}: the last turn calls tools, so the model would be asked once more; end with a "
            'turn that only has content, such as {"content": "Done."}'
        )
    return turns


def _playable(turn: ScriptTurn, number: int) -> Turn:
    calls = tuple(
        ToolCall(call.id or f"call_{number + 1}_{index}", call.name, call.arguments)
        for index, call in enumerate(turn.tool_calls)
    )
    return Turn(turn.content, tool_calls=calls)
