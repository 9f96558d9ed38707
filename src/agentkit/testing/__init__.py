"""The testing kit: crash harness, invariant checker, hostile store, strict fake provider.

Names are loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.testing.crash import Campaign, CrashingLLM, CrashingStore, CrashPlan, ForkServer
    from agentkit.testing.effects import Effect, EffectLog, KeyedSink
    from agentkit.testing.faulty import FaultyStore
    from agentkit.testing.invariants import Evidence, Violation, check, read_rows, report
    from agentkit.testing.lines import JsonLines

__all__ = [
    "Campaign",
    "CrashPlan",
    "CrashingLLM",
    "CrashingStore",
    "Effect",
    "EffectLog",
    "Evidence",
    "FaultyStore",
    "ForkServer",
    "JsonLines",
    "KeyedSink",
    "Violation",
    "check",
    "read_rows",
    "report",
]

_HOMES = {
    "Campaign": "crash",
    "CrashPlan": "crash",
    "CrashingLLM": "crash",
    "CrashingStore": "crash",
    "Effect": "effects",
    "EffectLog": "effects",
    "Evidence": "invariants",
    "FaultyStore": "faulty",
    "ForkServer": "crash",
    "JsonLines": "lines",
    "KeyedSink": "effects",
    "Violation": "invariants",
    "check": "invariants",
    "read_rows": "invariants",
    "report": "invariants",
}


if not TYPE_CHECKING:  # a type checker that saw it would accept every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
