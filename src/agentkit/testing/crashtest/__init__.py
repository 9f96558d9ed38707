"""The crash test of a user's own agent: killed at every border, compared with an undisturbed run.

`agentkit crashtest` and the pytest fixture `crash_everywhere` are two doors to `crash_test`. Names
are loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentkit.testing.crashtest.api import crash_test
    from agentkit.testing.crashtest.report import CrashReport, Finding, ToolReport
    from agentkit.testing.crashtest.watch import note_effect

__all__ = ["CrashReport", "Finding", "ToolReport", "crash_test", "note_effect"]

_HOMES = {
    "CrashReport": "report",
    "Finding": "report",
    "ToolReport": "report",
    "crash_test": "api",
    "note_effect": "watch",
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
