"""The `agentkit` command, also as `python -m agentkit`."""

import sys

import agentkit

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code.

    `--version` alone is answered here: it needs no command tree and no driver.
    """
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"agentkit {agentkit.__version__}\n")
        return

    from agentkit.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
