"""The `agentkit` command."""

from agentkit.cli.app import main

__all__ = ["main"]
