"""`python -m agentkit.testing.servers`: which servers can be started here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentkit.testing.servers.binaries import KINDS, BinaryMissing, find, missing_kinds

__all__ = ["main"]

_USAGE = """\
usage: python -m agentkit.testing.servers [--missing]

Says where the programs of the servers are. --missing: only the kinds that cannot be started.
"""


def main(arguments: Sequence[str]) -> int:
    """Say it. Returns the exit code: 1 if some kind cannot be started, 2 for a wrong argument."""
    absent = missing_kinds()
    if list(arguments) not in ([], ["--missing"]):
        sys.stderr.write(_USAGE)
        return 2
    for kind, programs in KINDS.items():
        if not arguments:
            print(kind, *(_place(program) for program in programs), sep="\n  ")  # noqa: T201
        elif kind in absent:
            print(kind)  # noqa: T201
    return bool(absent)


def _place(program: str) -> str:
    try:
        return find(program)
    except BinaryMissing as exc:
        return str(exc)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
