"""Keeping stores: runs moved between them and into files, and removed when they are old."""

from agentkit.state.upkeep.lines import ExportReader, ExportWriter, HeaderLine
from agentkit.state.upkeep.moving import copy_runs, export_runs, header_now, import_runs
from agentkit.state.upkeep.retention import Policy, Pruned, collect
from agentkit.state.upkeep.selecting import Moved, Selection

__all__ = [
    "ExportReader",
    "ExportWriter",
    "HeaderLine",
    "Moved",
    "Policy",
    "Pruned",
    "Selection",
    "collect",
    "copy_runs",
    "export_runs",
    "header_now",
    "import_runs",
]
