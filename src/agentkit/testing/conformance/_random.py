"""Random sequences of operations: against the memory store, and beside another scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random  # noqa: TID251 - seeded: a sequence can be repeated

from agentkit.core.contracts.once import keeps_values
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.testing.conformance._operations import Operation, Player, sequence
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import Broken
from agentkit.testing.conformance.materials import TTL_SECONDS

randomly = Subject("random", "journal")

_LENGTH = 60
_SHOWN = 12


@randomly.check("JournalPort")
async def a_store_answers_as_the_memory_store_does(it: Bench) -> None:
    """The same seeded sequences of operations get the same answers from both."""
    await _against_memory(it, range(1, 21))


@randomly.check("JournalPort", "handles")
async def a_store_answers_alike_through_several_handles(it: Bench) -> None:
    """The same, each operation through another handle than the one before it."""
    await _against_memory(it, range(501, 511), it.another(), it.another())


@randomly.check("JournalPort", slow=True)
async def a_store_answers_as_the_memory_store_does_in_many_sequences(it: Bench) -> None:
    """The same with hundreds of seeds."""
    await _against_memory(it, range(1_000, 1_150))


@randomly.check("JournalPort.scoped")
async def another_scope_with_the_same_runs_changes_no_answer(it: Bench) -> None:
    """Whatever happens under one scope is the same whether or not another one has data: the same
    run ids and keys, sequences of operations interleaved.
    """
    await _beside_another_scope(it, range(1, 9))


@randomly.check("JournalPort.scoped", slow=True)
async def another_scope_changes_no_answer_in_many_sequences(it: Bench) -> None:
    """The same with hundreds of seeds."""
    await _beside_another_scope(it, range(2_000, 2_080))


async def _against_memory(it: Bench, seeds: Sequence[int], *others: JournalPort) -> None:
    clock = it.clock if it.harness.clock == "held" else FakeClock()
    memory = InMemoryCheckpointStore(clock=clock)
    for seed in seeds:
        scope = Scope(f"seed {seed}")
        operations = sequence(_dice(seed), _LENGTH, without=_without(it))
        ours, theirs = Player(it.store, scope, *others), Player(memory, scope)
        for number, operation in enumerate(operations):
            if operation.kind == "pass":
                seconds = operation.at * TTL_SECONDS / 2
                await it.let_pass(seconds)
                if clock is not it.clock:
                    clock.advance(seconds)
                continue
            answer, expected = await ours.play(operation), await theirs.play(operation)
            if answer != expected:
                raise Broken(
                    _told(
                        seed,
                        operations[: number + 1],
                        "the memory store",
                        expected=expected,
                        actual=answer,
                    )
                )


async def _beside_another_scope(it: Bench, seeds: Sequence[int]) -> None:
    alone = await it.beside()
    for seed in seeds:
        dice = _dice(seed)
        scope, other = Scope("a", f"seed {seed}"), Scope("b", f"seed {seed}")
        without = _without(it) | {"pass"}
        operations = sequence(dice, _LENGTH, without=without)
        noise = sequence(dice, _LENGTH, without=without)
        lone, ours = Player(alone.store, scope), Player(it.store, scope)
        stranger = Player(it.store, other)
        for number, operation in enumerate(operations):
            await stranger.play(noise[number])
            answer, expected = await ours.play(operation), await lone.play(operation)
            if answer != expected:
                raise Broken(
                    _told(
                        seed,
                        operations[: number + 1],
                        "a store without that scope",
                        expected=expected,
                        actual=answer,
                    )
                )


def _without(it: Bench) -> frozenset[str]:
    without = set()
    if keeps_values(it.store) is None:
        without |= {"claim", "settle"}
    if "tombstones" in it.harness.lacks:
        without.add("entomb")
    if "due" in it.harness.lacks:
        without.add("due")
    if it.harness.clock == "real":
        without.add("pass")
    return frozenset(without)


def _told(
    seed: int, operations: Sequence[Operation], whom: str, *, expected: object, actual: object
) -> str:
    tail = "\n".join(
        f"  {number}: {_line(one)}" for number, one in list(enumerate(operations, 1))[-_SHOWN:]
    )
    return (
        f"seed {seed}, operation {len(operations)}: expected {expected} as {whom} answers, got "
        f"{actual}. The operations up to it, the last {_SHOWN} of them:\n{tail}"
    )


def _line(operation: Operation) -> str:
    shown = {name: getattr(operation, name) for name in operation.__struct_fields__}
    kind = shown.pop("kind")
    return f"{kind}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


_dice: Callable[[int], Random] = Random
