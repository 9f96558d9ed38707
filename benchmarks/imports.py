"""How long a new process takes until it can begin."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.report import budget, table

IMPORT_BUDGET = 60.0
VERSION_BUDGET = 150.0

_IMPORT = """
import time
began = time.perf_counter(), time.process_time()
import agentkit
print((time.perf_counter() - began[0]) * 1000, (time.process_time() - began[1]) * 1000)
"""


def _import() -> tuple[float, float]:
    printed = subprocess.run(
        [sys.executable, "-c", _IMPORT], check=True, capture_output=True, text=True
    ).stdout
    wall, cpu = printed.split()
    return float(wall), float(cpu)


def _process(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return (time.perf_counter() - began) * 1000


def imports(pairs: int) -> str:
    """`import agentkit` within a process, and `agentkit --version` with its process."""
    imported = [_import() for _ in range(pairs)]
    versions = [_process("-m", "agentkit", "--version") for _ in range(pairs)]
    empty = [_process("-c", "pass") for _ in range(pairs)]
    wall, cpu = (statistics.median(column) for column in zip(*imported, strict=True))
    version, nothing = statistics.median(versions), statistics.median(empty)
    show = "{:.0f} ms".format
    rows = [
        ("import agentkit", f"{wall:.0f} / {cpu:.0f}", budget(wall, IMPORT_BUDGET, show)),
        ("agentkit --version", f"{version:.0f}", budget(version, VERSION_BUDGET, show)),
        ("python -c pass", f"{nothing:.0f}", ""),
    ]
    return table("Start, in milliseconds (wall / CPU)", ("what", "ms", "wall budget"), rows)
