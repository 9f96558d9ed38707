"""Commands in processes of their own that begin with the imports behind them.

Most of the time of a short command goes into importing. A server that has imported the command line
and done nothing else forks a process for each command.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["run_forked"]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "agentkit.agents",
        "agentkit.cli.app",
        "agentkit.state.checkpoints.adapters.sqlite",
        "rich.table",
        "tests.cli.forks",
    ]
)


def run_forked(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int, str, str]:
    """Run `agentkit` in `folder` to its end; its exit code, standard output and error.

    Raises:
        TimeoutError: it did not end in time. It is killed.
    """
    with tempfile.TemporaryDirectory() as told:
        out, err = Path(told, "out"), Path(told, "err")
        process = CONTEXT.Process(
            target=_command, args=(list(arguments), folder, dict(environment), out, err)
        )
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(
                f"agentkit {arguments} did not end in {seconds:g} s:\n{err.read_text()}"
            )
        return process.exitcode, out.read_text(), err.read_text()


def _command(
    arguments: list[str], folder: Path, environment: dict[str, str], out: Path, err: Path
) -> None:
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [str(folder), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = ["agentkit", *arguments]
    runpy.run_module("agentkit", run_name="__main__")
