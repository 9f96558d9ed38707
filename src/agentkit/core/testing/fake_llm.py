"""`FakeLLM`: a model for tests that answers from a script, a text or a function."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.model import AnswerStop, ModelReply, ModelRequest, TextDelta
from agentkit.core.contracts.types import CallRecord, Message, Native, ToolCall, Usage

__all__ = ["DEFAULT_USAGE", "Answer", "FakeLLM", "ScriptExhausted", "Turn"]

DEFAULT_USAGE = Usage(input_tokens=10, output_tokens=5, requests=1)


class ScriptExhausted(AgentkitError):
    """A scripted `FakeLLM` was asked once more than its script has turns."""


class Turn(msgspec.Struct, frozen=True):
    """One answer of a fake model.

    Args:
        content: the text.
        tool_calls: the calls; their `arguments` may be a `str` that is not JSON.
        stop: why it ended; by default `tool_use` with calls and `end` without.
        usage: tokens of the answer.
        native: provider content, where a test wants some.
        error: raised instead of answering, after `content` was streamed.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: AnswerStop | None = None
    usage: Usage = DEFAULT_USAGE
    native: Native | None = None
    error: Exception | None = None


Answer: TypeAlias = Callable[[Sequence[Message]], Turn]


class FakeLLM:
    """A model that costs nothing. Implements `LLMPort`.

    `FakeLLM("text")` always answers the text. `FakeLLM(fn)` calls `fn(messages)` with the whole
    transcript, system prompt first, and answers the `Turn` it returns: this is the form for tests
    with several processes, since it answers from what the run knows. `FakeLLM.script([...])`
    answers turn by turn and raises `ScriptExhausted` beyond the last; its position is per object.

    Args:
        answer: a text, or a function from the transcript to a `Turn`.
        model: the name under which it answers.

    Attributes:
        requests: every request received, in order.
        turns: all turns of a `script`; `None` for other fakes.
    """

    origin = "fake"

    def __init__(self, answer: str | Answer, *, model: str = "fake") -> None:
        self._next: Callable[[ModelRequest], Turn]
        if isinstance(answer, str):
            turn = Turn(content=answer)
            self._next = lambda _: turn
        else:
            self._next = lambda request: _turn(answer(_shown(request)))
        self._model = model
        self.requests: list[ModelRequest] = []
        self.turns: tuple[Turn, ...] | None = None

    @classmethod
    def script(cls, turns: Iterable[Turn]) -> FakeLLM:
        """A fake that answers these turns, one a request."""
        given = tuple(turns)
        total = len(given)
        remaining = list(reversed(given))

        def take(_: ModelRequest) -> Turn:
            if not remaining:
                message = (
                    f"the script of this FakeLLM has {total} turns and all are used; a script does "
                    "not begin again: make a new FakeLLM, or FakeLLM(fn) for any number of answers"
                )
                raise ScriptExhausted(message)
            return remaining.pop()

        fake = cls("")
        fake._next = take
        fake.turns = given
        return fake

    async def attempt(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer `request`; the text comes as one delta when streaming is asked for."""
        self.requests.append(request)
        turn = self._next(request)
        if request.stream and turn.content:
            yield TextDelta(turn.content)
        if turn.error is not None:
            raise turn.error
        stop: AnswerStop = turn.stop or ("tool_use" if turn.tool_calls else "end")
        yield ModelReply(
            text=turn.content,
            calls=tuple(_record(call) for call in turn.tool_calls),
            stop=stop,
            usage=turn.usage,
            model=self._model,
            native=turn.native,
        )


def _turn(answer: object) -> Turn:
    if not isinstance(answer, Turn):
        kind = type(answer).__name__
        raise TypeError(f"the function of this FakeLLM returned {kind}; it must return a Turn")
    return answer


def _shown(request: ModelRequest) -> Sequence[Message]:
    if not request.system:
        return request.messages
    return [Message("system", request.system), *request.messages]


def _record(call: ToolCall) -> CallRecord:
    arguments = call.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return CallRecord(call.id, call.name, text)
