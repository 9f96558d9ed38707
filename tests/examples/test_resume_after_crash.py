"""The example of the first page runs as it stands and shows what it says."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "resume_after_crash.py"


def test_the_next_worker_answers_without_calling_the_tool_again() -> None:
    """The killed worker's step is kept: its call is not repeated, its answer not bought again."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (0, "") == (ended.returncode, ended.stderr)
    assert [
        "first worker:",
        "  [tool] tide_table('Bergen') in process N",
        "  [step] iteration:1 is durable; the worker is killed",
        "it ended with SIGKILL; next worker:",
        "  [checkpoints] [1]",
        '  [answer] High tides in Bergen today: ["04:12","16:38"]. (2 model answers in all)',
    ] == re.sub(r"process \d+", "process N", ended.stdout).splitlines()
