"""Messages API: each call exactly one result, in call order, directly after its message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.shapes import Body, rows, table, text

__all__ = ["pairing_refusals"]


@dataclass(frozen=True, slots=True)
class _Block:
    where: str
    body: Body

    @property
    def kind(self) -> str:
        return text(self.body.get("type"))

    @property
    def label(self) -> str:
        return text(self.body.get("id") or self.body.get("tool_use_id"))


@dataclass(frozen=True, slots=True)
class _Turn:
    """One assistant message, or the consecutive user messages that the service reads as one."""

    where: str
    role: str
    blocks: tuple[_Block, ...]

    def of(self, kind: str) -> list[_Block]:
        return [block for block in self.blocks if block.kind == kind]


def pairing_refusals(body: Body) -> Iterator[Refusal]:
    """Yield what is wrong between calls and results; the shape of the blocks is checked before."""
    turns = _turns(body)
    yield from _repeated_ids(turns)
    for index, turn in enumerate(turns):
        before = turns[index - 1] if index else None
        after = turns[index + 1] if index + 1 < len(turns) else None
        if turn.role == "assistant":
            yield from _call_refusals(turn, after)
        else:
            yield from _orphan_refusals(turn, before)
    yield from _server_tool_refusals(turns)


def _turns(body: Body) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, message in enumerate(rows(body["messages"])):
        role = text(table(message).get("role"))
        blocks = tuple(
            _Block(f"messages.{index}.content.{position}", table(block))
            for position, block in enumerate(rows(table(message).get("content")))
        )
        if role == "user" and turns and turns[-1].role == "user":
            turns[-1] = _Turn(turns[-1].where, role, turns[-1].blocks + blocks)
        else:
            turns.append(_Turn(f"messages.{index}", role, blocks))
    return turns


def _repeated_ids(turns: list[_Turn]) -> Iterator[Refusal]:
    seen: set[str] = set()
    for turn in turns:
        for block in turn.of("tool_use"):
            if block.label in seen:
                yield Refusal("duplicate_call_id", f"{block.where}: `tool_use` ids must be unique")
            seen.add(block.label)


def _call_refusals(turn: _Turn, after: _Turn | None) -> Iterator[Refusal]:
    calls = [block.label for block in turn.of("tool_use")]
    if not calls:
        return
    blocks = after.blocks if after is not None and after.role == "user" else ()
    results = [block for block in blocks if block.kind == "tool_result"]
    answered = {block.label for block in results}
    missing = [call for call in calls if call not in answered]
    if missing:
        yield _unanswered("dangling_call", turn, missing)
    for position, block in enumerate(results):
        if block.label in {earlier.label for earlier in results[:position]}:
            yield Refusal(
                "duplicate_result",
                f"{block.where}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {block.label}",
            )
    if [block.kind for block in blocks[: len(results)]] != ["tool_result"] * len(results):
        yield _unanswered("results_not_first", turn, calls)
    for call, block in zip(calls, results, strict=False):
        if block.label in calls and block.label != call:
            yield Refusal(
                "reordered_results",
                f"{block.where}: `tool_result` blocks must stand in the order of their `tool_use` "
                f"blocks: expected {call}, found {block.label}",
            )


def _unanswered(rule: str, turn: _Turn, calls: list[str]) -> Refusal:
    return Refusal(
        rule,
        f"{turn.where}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block "
        "in the next message.",
    )


def _orphan_refusals(turn: _Turn, before: _Turn | None) -> Iterator[Refusal]:
    calls = {block.label for block in before.of("tool_use")} if before is not None else set()
    for block in turn.of("tool_result"):
        if block.label not in calls:
            yield Refusal(
                "orphan_result",
                f"{block.where}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{block.label}. Each `tool_result` block must have a corresponding `tool_use` "
                "block in the previous message.",
            )


def _server_tool_refusals(turns: list[_Turn]) -> Iterator[Refusal]:
    """Server tools answer in assistant messages: of the same turn, or of a later one if paused."""
    opened: dict[str, _Block] = {}
    for turn in turns:
        # One that called a client tool is answered after that call's result.
        if turn.role == "user" and not turn.of("tool_result"):
            yield from _unanswered_server_tools(opened)
        for block in turn.blocks:
            if block.kind == "server_tool_use":
                opened[block.label] = block
            elif block.label.startswith("srvtoolu_") and block.label not in opened:
                yield Refusal(
                    "orphan_result",
                    f"{block.where}: unexpected `tool_use_id` found in `{block.kind}` blocks: "
                    f"{block.label}. Each `{block.kind}` block must have a corresponding "
                    "`server_tool_use` block before it.",
                )
            else:
                opened.pop(block.label, None)


def _unanswered_server_tools(opened: dict[str, _Block]) -> Iterator[Refusal]:
    for label, block in opened.items():
        name = text(block.body.get("name"))
        yield Refusal(
            "dangling_call",
            f"{block.where}: `{name}` tool use with id `{label}` was found without a corresponding "
            f"`{name}_tool_result` block",
        )
