"""`python -m agentkit.testing.conformance MODULE:HARNESS`: check a store and say what is broken."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from pkgutil import resolve_name

from agentkit.testing.conformance.harness import Harness
from agentkit.testing.conformance.kit import CHECKS, check_store

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Check a store. Returns the exit code: 0 kept, 1 broken, 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m agentkit.testing.conformance",
        description="Check whether a store keeps what the ports promise.",
    )
    parser.add_argument(
        "harness", nargs="?", help="module:name of a Harness, a class of it or a function"
    )
    parser.add_argument("--only", default="", help="checks whose name contains this text")
    parser.add_argument("--thorough", action="store_true", help="also the checks that take long")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--verbose", action="store_true", help="name the promises that are kept")
    parser.add_argument("--list", action="store_true", help="name all checks and end")
    given = parser.parse_args(arguments)
    if given.list:
        sys.stdout.writelines(f"{check.name}: {check.promise}\n" for check in CHECKS)
        return 0
    if not given.harness:
        parser.error("which harness? Give module:name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        harness = _harness(given.harness)
    except (ImportError, AttributeError, ValueError, TypeError) as exc:
        parser.error(f"{given.harness!r} is no harness: {exc}")
    chosen = [check for check in CHECKS if given.only in check.name]
    report = asyncio.run(check_store(harness, checks=chosen, thorough=given.thorough))
    shown = report.json() if given.json else report.text(verbose=given.verbose)
    sys.stdout.write(f"{shown}\n")
    return 0 if report.ok else 1


def _harness(name: str) -> Harness:
    found = resolve_name(name)
    harness = found() if callable(found) else found
    if not isinstance(harness, Harness):
        raise TypeError(f"it is a {type(harness).__name__}")
    return harness


if __name__ == "__main__":
    sys.exit(main())
