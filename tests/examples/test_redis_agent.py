"""The example of an agent in Redis: dies in its tool, goes on, and says plainly where it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

EXAMPLE = Path(__file__).parents[2] / "examples" / "redis_agent.py"
KILLED = -9


def _run(url: str, *options: str, task: str = "t1") -> tuple[int, list[str], str]:
    """Exit code, what was printed, what was complained."""
    command = [sys.executable, "-W", "error", str(EXAMPLE), "--redis", url, "--task", task]
    ended = subprocess.run(
        [*command, "--goal", "Book a flight to NYC", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return ended.returncode, ended.stdout.splitlines(), ended.stderr


BEGUN = [
    "[tool] find_flights to NYC",
    "[checkpoint] saved step 1 for t1",
    "[tool] book_flight DY 7001: booked",
    "[crash] killed in the middle of book_flight",
]
DONE = "[agent] task complete: Your flight to NYC is booked: DY 7001, seat 1."


def test_it_dies_in_its_tool_and_books_once(redis_url: str) -> None:
    """The story of the tutorial: killed, resumed, and asked once more when it is done."""
    server = redis.Redis.from_url(redis_url, decode_responses=True)

    assert (KILLED, BEGUN, "") == _run(redis_url)
    head = server.hgetall("agent:checkpoint:{t1}")
    assert isinstance(head, dict)
    shown = [head[name] for name in ("status", "task", "step")]
    assert ["running", "Book a flight to NYC", "1"] == shown

    resumed = [
        "[resume] restored at step 1",
        "[tool] book_flight DY 7001: was booked",
        "[checkpoint] saved step 2 for t1",
        DONE,
    ]
    assert (0, resumed, "") == _run(redis_url, "--resume")
    assert (0, ["[resume] restored at step 2", DONE], "") == _run(redis_url, "--resume")
    assert 1 == server.hlen("airline:DY 7001")
    server.close()


def test_a_run_that_was_not_killed_needs_no_resume(redis_url: str) -> None:
    """`--steady` books and reports in one go."""
    code, printed, complaint = _run(redis_url, "--steady")

    assert (0, DONE, "") == (code, printed[-1], complaint)


@pytest.mark.parametrize("address", ["foo", "redis://x:notaport/0"])
def test_an_address_that_is_none_is_one_plain_line(address: str) -> None:
    """Not a traceback."""
    code, printed, complaint = _run(address)

    assert (6, 1, "") == (code, len(printed), complaint)
    assert printed[0].startswith("[store] ")


def test_a_missing_driver_is_one_plain_line(tmp_path: Path) -> None:
    """It says what to install."""
    (tmp_path / "redis.py").write_text("raise ImportError('no such driver')")
    command = [sys.executable, str(EXAMPLE), "--task", "t1", "--goal", "Book."]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    told = '[store] redis-py is not installed: pip install "arc-agentkit[redis]"\n'
    assert (1, "", told) == (ended.returncode, ended.stdout, ended.stderr)


def test_an_unknown_task_is_not_started_by_resuming_it(redis_url: str) -> None:
    """Nothing is booked because somebody mistyped an id."""
    told = ["[resume] no checkpoint found for t7: start it without --resume"]

    assert (3, told, "") == _run(redis_url, "--resume", task="t7")


@pytest.mark.parametrize("options", [(), ("--resume",)])
def test_what_has_expired_is_told_and_not_started_over(
    redis_url: str, options: tuple[str, ...]
) -> None:
    """The head is there and the entries are not: nobody knows what was booked."""
    _run(redis_url)
    server = redis.Redis.from_url(redis_url)
    server.delete("agent:log:{t1}")

    code, printed, complaint = _run(redis_url, *options)

    assert (3, "") == (code, complaint)
    [told] = printed
    assert told.startswith("[resume] expired: t1 had begun")
    assert 1 == server.hlen("airline:DY 7001")
    server.close()


@pytest.mark.slow  # it is waited for as long as a store waits
def test_a_server_that_is_not_there_is_one_plain_line() -> None:
    """No traceback, and the address."""
    code, [told], complaint = _run("redis://127.0.0.1:1/0")

    assert (6, "") == (code, complaint)
    assert told.startswith("[store] the store redis://127.0.0.1:1/0 cannot be reached")
