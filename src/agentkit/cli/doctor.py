"""`doctor`: what this installation has, and whether its store can be trusted."""

from __future__ import annotations

import os
import platform
import time
from importlib.util import find_spec
from typing import NamedTuple

from agentkit.cli.exits import FAILED, OK
from agentkit.cli.output import emit_json, print_table
from agentkit.cli.session import run_command
from agentkit.core.contracts.ports import JournalPort

__all__ = ["examine"]

_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
_SDKS = ("anthropic", "openai")


class _Finding(NamedTuple):
    """`level`: ok, note (fine, but worth knowing) or bad."""

    subject: str
    level: str
    text: str


def examine(store_url: str | None, *, as_json: bool) -> None:
    """Check and tell; leaves with 1 where something is bad, 6 where the store cannot be reached."""

    async def work(store: JournalPort) -> int:
        findings = [*_installation(), *await _store(store)]
        if as_json:
            emit_json([finding._asdict() for finding in findings])
        else:
            print_table(
                ("", "subject", "finding"), [(f.level, f.subject, f.text) for f in findings]
            )
        return FAILED if any(finding.level == "bad" for finding in findings) else OK

    run_command(store_url, work, as_json=as_json)


def _installation() -> list[_Finding]:
    import apsw

    findings = [
        _Finding("python", "ok", platform.python_version()),
        _Finding("sqlite", "ok", f"{apsw.sqlite_lib_version()} (bundled with apsw)"),
    ]
    if not hasattr(time, "CLOCK_BOOTTIME"):
        text = "no clock that counts while the machine sleeps; leases use the monotonic one"
        findings.append(_Finding("clock", "note", text))
    for sdk in _SDKS:
        if find_spec(sdk) is None:
            text = f'not installed: pip install "arc-agentkit[{sdk}]"'
            findings.append(_Finding(sdk, "note", text))
        else:
            findings.append(_Finding(sdk, "ok", "SDK installed"))
    findings += [
        _Finding(key, "ok" if os.environ.get(key) else "note", _is_set(key)) for key in _KEYS
    ]
    return findings


async def _store(store: JournalPort) -> list[_Finding]:
    """Reaches the store; a store that cannot be opened raises."""
    page, _ = await store.list_runs(limit=1)
    text = f"{store.location}: reachable, " + ("has runs" if page else "no runs yet")
    findings = [_Finding("store", "ok", text)]
    if store.location.startswith("memory:"):
        findings.append(_Finding("store", "note", "in memory: runs die with the process"))
    return findings


def _is_set(key: str) -> str:
    return "set" if os.environ.get(key) else "not set"
