"""The example of a sink that honours the fencing token does what it says."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "fencing_sink.py"


def test_a_worker_that_was_paused_in_its_tool_is_refused_by_the_sink() -> None:
    """It wakes up after the takeover with its old epoch; the gate stays as the next worker left
    it.
    """
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    late = (
        "run 'lock-7': a late outcome is not recorded (call 1.0 ended: error): it has ended (done) "
        "meanwhile\n"
    )
    assert (0, late) == (ended.returncode, ended.stderr)
    assert [
        "first worker is paused inside its tool; next worker:",
        "  [sink] gate 7 is at 80 %",
        "  [sink] gate 7 is at 0 %",
        "  [answer] The barge is through.",
        "first worker goes on:",
        "  [sink] gate 7 has seen a newer worker; 80 % refused",
        "  [worker] has lost the run and stops",
        "the gate is at 0 %",
    ] == ended.stdout.splitlines()
