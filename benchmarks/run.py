"""Measure agentkit and print the table: `python benchmarks/run.py`, `--quick` for a first look."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import concurrency, imports, iterations, reading, servers


def sections(folder: Path, *, sizes: list[int], runs: list[int], total: int, pairs: int) -> dict[
    str, Callable[[], str]
]:  # fmt: skip
    """What can be measured, by name."""
    few, longest = min(sizes), max(sizes)
    return {
        "iterations": lambda: iterations.beside_the_floor(folder, sizes, pairs),
        "bytes": lambda: iterations.stored_bytes(folder, few, max(2 * few, min(longest, 1_000))),
        "flat": lambda: iterations.flatness(longest, min(100, longest // 3), max(2, pairs // 20)),
        "reading": lambda: reading.reading(folder, [longest], max(2, pairs // 10)),
        "concurrency": lambda: concurrency.concurrency(folder, runs, total, max(2, pairs // 10)),
        "servers": lambda: servers.on_servers(runs, total, max(2, pairs // 30)),
        "imports": lambda: imports.imports(max(2, pairs // 5)),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the chosen sections and print each as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("section", nargs="*", help="only these (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="short runs, few pairs: about a minute"
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="lengths of runs")
    parser.add_argument("--runs", type=int, nargs="+", help="numbers of concurrent runs")
    parser.add_argument("--total", type=int, help="iterations of all concurrent runs together")
    parser.add_argument("--pairs", type=int, help="how often each pair is measured")
    parser.add_argument("--folder", type=Path, help="where the files go: name the disk you mean")
    given = parser.parse_args(arguments)
    quick = given.quick
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        known = sections(
            Path(name),
            sizes=given.sizes or ([10, 100, 1_000] if quick else [10, 100, 1_000, 10_000]),
            runs=given.runs or [1, 10, 100, 1_000],
            total=given.total or (1_000 if quick else 5_000),
            pairs=given.pairs or (20 if quick else 100),
        )
        unknown = set(given.section) - set(known)
        if unknown:
            parser.error(f"no section {min(unknown)!r}; there are {', '.join(known)}")
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, files in {name}\n")
        for section in given.section or known:
            print(known[section](), flush=True)


if __name__ == "__main__":
    main()
