"""The one place that builds the messages of a run from its recorded facts.

Call ids are made unique (providers repeat or omit them), names and arguments that a provider would
refuse are replaced, and every call gets exactly one result, in call order, directly after its
assistant message. The journal keeps what really came; only what is sent is mended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, overload

from agentkit.core.contracts.entries import ModelAnswered, ToolFinished
from agentkit.core.contracts.types import CallRecord, JSONObject, Message, ToolCall
from agentkit.core.contracts.values import parse_arguments

__all__ = ["MAX_KEY_CHARACTERS", "NO_RESULT", "MessageView", "Transcript"]

NO_RESULT = "No result of this call was recorded."
"""What the model sees for a call of a damaged journal that has no outcome."""

MAX_KEY_CHARACTERS = 64
"""Longest argument name that is sent back to a provider."""

_BAD_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_USABLE = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_KEY_CHARACTERS}}}\Z")
_BAD_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


class _Answer(NamedTuple):
    """An answer that nobody has looked at yet: reading a long journal parses no arguments."""

    recorded: ModelAnswered
    ids: tuple[str, ...]

    def message(self) -> Message:
        """The assistant message."""
        recorded = self.recorded
        calls = tuple(
            ToolCall(call_id, _name(call), _arguments(call))
            for call_id, call in zip(self.ids, recorded.calls, strict=True)
        )
        return Message("assistant", recorded.text, tool_calls=calls, native=recorded.native)


class MessageView(Sequence[Message]):
    """The first `length` messages of an append-only buffer: frozen without a copy."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, buffer: list[Message | _Answer], length: int) -> None:
        self._buffer = buffer
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        at = index if index >= 0 else self._length + index
        message = self._buffer[at]
        if isinstance(message, _Answer):
            message = self._buffer[at] = message.message()
        return message

    def __iter__(self) -> Iterator[Message]:
        for index in range(self._length):
            yield self[index]


class Transcript:
    """Grows with the fold. `repairs` tells what had to be mended to keep it valid."""

    def __init__(self) -> None:
        self._messages: list[Message | _Answer] = []
        self._ids: set[str] = set()
        self._open: tuple[str, ...] = ()
        self._results_at = 0
        self._waiting: list[str] = []
        self.repairs: list[str] = []

    def view(self) -> MessageView:
        """The messages so far, ready to be sent."""
        return MessageView(self._messages, len(self._messages))

    def add_user(self, text: str) -> None:
        """A user message, behind the results of calls that have none yet; empty text is not sent
        by any adapter.
        """
        if self._open:
            self._waiting.append(text)
        else:
            self._messages.append(Message("user", text))

    @property
    def ends_with_user(self) -> bool:
        """Whether the newest message is one of the user's, to which there is no answer yet."""
        last = self._messages[-1] if self._messages else None
        return isinstance(last, Message) and last.role == "user"

    def add_answer(self, answer: ModelAnswered) -> None:
        """An assistant message, in front of what the user said too late for it."""
        unseen = self._take_back(answer.unseen)
        self._open = tuple(
            [self._unique(call.id, answer.turn, at) for at, call in enumerate(answer.calls)]
        )
        self._messages.append(_Answer(answer, self._open))
        for text in unseen:
            self.add_user(text)

    def _take_back(self, count: int) -> list[str]:
        """The newest user messages, which are not in their place yet. Views that were handed out
        keep what they had.
        """
        taken: list[str] = []
        if count:
            self._messages = self._messages.copy()
        while len(taken) < count and len(self._messages) > 1 and self.ends_with_user:
            last = self._messages.pop()
            taken.insert(0, last.content if isinstance(last, Message) else "")
        return taken

    def add_results(self, outcomes: Mapping[int, ToolFinished]) -> None:
        """The results of the last answer's calls, by call index; a missing one is said so."""
        self._results_at = len(self._messages)
        for index, call_id in enumerate(self._open):
            outcome = outcomes.get(index)
            self._messages.append(
                Message(
                    "tool",
                    NO_RESULT if outcome is None else outcome.content,
                    tool_call_id=call_id,
                    is_error=outcome is None or outcome.outcome != "ok",
                )
            )
        self._open = ()
        while self._waiting:
            self.add_user(self._waiting.pop(0))

    def change_results(self, contents: Mapping[int, str]) -> None:
        """Other contents for some of the newest results, by call index. Views that were handed out
        keep what they had.
        """
        self._messages = self._messages.copy()
        for index, content in contents.items():
            before = self._messages[self._results_at + index]
            if isinstance(before, Message):
                self._messages[self._results_at + index] = Message(
                    "tool", content, tool_call_id=before.tool_call_id
                )

    def _unique(self, label: str, turn: int, index: int) -> str:
        """`label` where it is usable and new in this transcript, else one made from the place."""
        usable = _USABLE.match(label)
        unique = label if usable else _BAD_NAME.sub("_", label)[:MAX_KEY_CHARACTERS]
        if not unique or unique in self._ids:
            unique = f"call_{turn}_{index}"
        while unique in self._ids:
            unique += "_"
        self._ids.add(unique)
        return unique


def _name(call: CallRecord) -> str:
    return _BAD_NAME.sub("_", call.name)[:MAX_KEY_CHARACTERS] or "unnamed"


def _arguments(call: CallRecord) -> JSONObject | str:
    arguments = parse_arguments(call.arguments)
    if arguments is None:
        return call.arguments
    if any(len(key) > MAX_KEY_CHARACTERS or _BAD_KEY.search(key) for key in arguments):
        return {}
    return arguments
