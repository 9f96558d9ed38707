"""The provider as a process of its own: prints its URL, serves until it is told to end."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from agentkit.testing.provider.script import ScriptError
from agentkit.testing.provider.server import StrictProvider

__all__ = ["main"]

_ENDS = (signal.SIGTERM, signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        arguments: of the command line; None takes those of the process.

    Returns:
        Exit code: 0 after an orderly end, 2 if the script cannot be used.
    """
    options = _parser().parse_args(arguments)
    # Blocked before any thread starts, so that all inherit it and `sigwait` alone receives them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        provider = StrictProvider(
            options.script,
            api_key=options.api_key,
            models=options.model,
            log=options.log,
            port=options.port,
        )
    except (ScriptError, OSError) as error:
        sys.stderr.write(f"agentkit.testing.provider: {error}\n")
        return 2
    with provider:
        sys.stdout.write(f"{provider.url}\n")
        sys.stdout.flush()
        signal.sigwait(_ENDS)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agentkit.testing.provider", description=__doc__)
    parser.add_argument("--script", type=Path, required=True, help="JSON script")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port (default)")
    parser.add_argument("--api-key", default="test-key", help="the valid key (default: test-key)")
    parser.add_argument("--log", type=Path, help="file for bought and sent answers")
    parser.add_argument("--model", action="append", help="a known model; may be repeated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
