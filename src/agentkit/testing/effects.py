"""The outside world of a test: what tools did to it, whoever did it and whatever became of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from agentkit.core.contracts.values import digest
from agentkit.testing.lines import JsonLines
from agentkit.tools import ToolContext

__all__ = ["Effect", "EffectKind", "EffectLog", "KeyedSink", "effect_of"]

EffectKind: TypeAlias = Literal["run", "effect", "refused"]
"""`run`: a tool's function was entered. `effect`: something changed outside. `refused`: a sink had
the key already and changed nothing."""


class Effect(msgspec.Struct, frozen=True):
    """One line of the log.

    Args:
        kind: see `EffectKind`.
        tool: who did it.
        run: the run it was done for.
        key: the call's idempotency key; empty for tools without side effects.
        digest: of tool and arguments, as the journal's intents carry it.
        attempt: the attempt, as the tool was told.
        epoch: the fencing token, as the tool was told.
        result: what the tool returns for it.
        pid: of the process.
        holder: the epoch that held the run in the store at that moment; 0 where nobody looked.
    """

    kind: EffectKind
    tool: str
    run: str
    key: str
    digest: str
    attempt: int
    epoch: int
    result: str = ""
    pid: int = 0
    holder: int = 0


def effect_of(
    tool: str,
    arguments: object,
    context: ToolContext,
    *,
    kind: EffectKind,
    result: str,
    pid: int,
    holder: int = 0,
) -> Effect:
    """What `tool` did when it was given `arguments` in `context`; the rest as in `Effect`."""
    return Effect(
        kind=kind,
        tool=tool,
        run=context.run_id,
        key=context.idempotency_key,
        digest=digest(tool, arguments),
        attempt=context.attempt,
        epoch=context.fencing_token,
        result=result,
        pid=pid,
        holder=holder,
    )


class EffectLog:
    """An append-only file of effects, each on the disk before the tool goes on.

    Args:
        path: the file; any number of processes may use it at once.
    """

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path, sync=True)

    @property
    def path(self) -> Path:
        """The file."""
        return self._lines.path

    def record(
        self,
        tool: str,
        arguments: object,
        context: ToolContext,
        *,
        kind: EffectKind = "effect",
        result: str = "",
    ) -> Effect:
        """Write one line: `tool` was given `arguments` and did this."""
        effect = effect_of(tool, arguments, context, kind=kind, result=result, pid=os.getpid())
        self._lines.write(msgspec.to_builtins(effect))
        return effect

    def read(self, run: str | None = None) -> list[Effect]:
        """All lines in order, or those of one run."""
        effects = [msgspec.convert(line, Effect) for line in self._lines.read()]
        return [effect for effect in effects if run in {None, effect.run}]

    def effects(self, run: str | None = None) -> list[Effect]:
        """The lines where something changed outside."""
        return [effect for effect in self.read(run) if effect.kind == "effect"]


class KeyedSink:
    """An outside system that honours idempotency keys: one effect for each key, for ever.

    Args:
        log: where its effects and refusals stand; they are its memory too.
    """

    def __init__(self, log: EffectLog) -> None:
        self._log = log

    def put(self, tool: str, arguments: object, context: ToolContext, *, result: str) -> str:
        """Have the effect, or refuse a key that had it.

        Returns:
            The result of the first effect with this key.
        """
        with self._locked():
            for earlier in self._log.effects():
                if earlier.key == context.idempotency_key:
                    self._log.record(tool, arguments, context, kind="refused")
                    return earlier.result
            self._log.record(tool, arguments, context, result=result)
            return result

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # The lock goes with the descriptor, so with the process: a killed one holds nobody up.
        lock = self._log.path.with_suffix(".lock")
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
