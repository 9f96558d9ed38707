"""`agentkit submit` and `agentkit worker`: who asks for runs, and who makes them."""

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.kit import Shell, hear

NOISY = """
from agentkit import Agent, ReActCognition, ToolCall, tool
from agentkit.core.testing import FakeLLM, Turn

print("imported")


@tool(side_effecting=False)
def speak() -> str:
    print("tool runs")
    return "said"


def think(messages):
    if len(messages) > 1:
        return Turn("done")
    return Turn("", tool_calls=(ToolCall("c", "speak", {}),))


agent = Agent("noisy", FakeLLM(think), cognition=ReActCognition([speak]))
"""


def _submitted(shell: Shell, *more: str, run: str = "r1", agent: str = "looker") -> None:
    done = shell("submit", f"agents:{agent}", "Do it.", "--run-id", run, *more)
    assert 0 == done.code, done


def _worker(shell: Shell, *more: str) -> "subprocess.Popen[bytes]":
    return shell.start("worker", "agents:looker", "agents:sender", "--poll", "0.05", *more)


def _statuses(shell: Shell) -> dict[str, str]:
    return {run["run"]: run["status"] for run in shell("runs", "--json").json}


def _ended(worker: "subprocess.Popen[bytes]", number: signal.Signals) -> tuple[int, str]:
    worker.send_signal(number)
    _, err = worker.communicate(timeout=60)
    return worker.returncode, err.decode()


def test_a_submitted_run_is_made_by_the_next_worker(shell: Shell) -> None:
    """The id is the answer; nothing is run or imported by the submission."""
    done = shell("submit", "agents:looker", "Look at a.", "--run-id", "r1")
    waits, listed = _statuses(shell), shell("runs").out
    shown = shell("show", "r1").out
    worked = shell("worker", "agents:looker", "--until-idle")

    assert (0, "r1\n", "") == done
    assert {"r1": "submitted"} == waits
    assert "no worker has begun it" in listed
    assert "submitted for agents:looker: Look at a." in shown
    assert 0 == worked.code
    assert "claimed r1 (agents:looker): it was submitted\n" in worked.err
    assert "ended r1 (looker): completed\n" in worked.err
    assert {"r1": "done"} == _statuses(shell)
    assert "It is value of a" == shell("runs", "--json").json[0]["output"]


def test_a_submission_again_changes_nothing_and_says_so(shell: Shell) -> None:
    """Another task, or another caller, is refused with 4."""
    _submitted(shell)
    again = shell("submit", "agents:looker", "Do it.", "--run-id", "r1")
    as_json = shell("submit", "agents:looker", "Do it.", "--run-id", "r1", "--json")
    other = shell("submit", "agents:looker", "Do that.", "--run-id", "r1")
    caller = shell("submit", "agents:looker", "Do it.", "--run-id", "r1", "--identity", "bob")

    assert (0, "r1\n") == (again.code, again.out)
    assert "it was there already, with this task: submitted" in again.err
    assert {"run": "r1", "status": "submitted", "repeated": True} == as_json.json
    assert (4, 4) == (other.code, caller.code)
    assert "another task" in other.err
    assert "another identity" in caller.err


def test_f070_a_submission_is_durable_before_its_id_is_told(shell: Shell) -> None:
    """Killed before and after each of its writes: the run is there once or not at all, and what is
    repeated makes it once.
    """
    order = ("submit", "agents:looker", "Look at a.", "--run-id", "r1")
    kills = list(shell.killed_at_each(*order))

    assert [1, 2] == kills
    assert ["run_submitted"] == [
        entry["kind"] for entry in shell("show", "r1", "--json").json["entries"]
    ]


def test_f070_of_twenty_submitters_at_once_one_is_the_first(shell: Shell) -> None:
    """In processes of their own; the others are told that it was there."""
    order = ("submit", "agents:looker", "Look at a.", "--run-id", "r1", "--json")
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda _: shell(*order), range(20)))

    assert {0} == {one.code for one in made}
    assert [False] + [True] * 19 == sorted(one.json["repeated"] for one in made)
    assert 1 == len(shell("show", "r1", "--json").json["entries"])


def test_a_worker_serves_all_tenants_and_tells_in_json(shell: Shell) -> None:
    """A document a line on standard output; what agents print is not among them."""
    _submitted(shell, run="ours")
    _submitted(shell, "--tenant", "acme", run="theirs")
    _submitted(shell, run="nobodys", agent="elsewhere")

    worked = shell("worker", "agents:looker", "--until-idle", "--json")

    told = [json.loads(line) for line in worked.out.splitlines()]
    assert {("claimed", "ours", ""), ("claimed", "theirs", "acme")} == {
        (one["event"], one["run"], one["scope"]) for one in told if one["event"] == "claimed"
    }
    assert ["completed", "completed"] == [
        one["stop_reason"] for one in told if one["event"] == "ended"
    ]
    [unknown] = [one for one in told if one["event"] == "unknown_agent"]
    assert ("nobodys", "agents:elsewhere") == (unknown["run"], unknown["agent"])
    assert ("begun", "stopped") == (told[0]["event"], told[-1]["event"])
    assert "<looking>" in worked.err


def test_what_agents_print_does_not_get_among_the_documents(shell: Shell) -> None:
    """Neither when their module is imported nor when their tools run."""
    (shell.folder / "noisy.py").write_text(NOISY)
    assert 0 == shell("submit", "noisy", "Do it.", "--run-id", "r1").code

    worked = shell("worker", "noisy:agent", "--until-idle", "--json")

    told = [json.loads(line)["event"] for line in worked.out.splitlines()]
    assert ["begun", "claimed", "ended", "stopped"] == told
    assert ("imported" in worked.err, "tool runs" in worked.err) == (True, True)


def test_a_person_lets_a_run_of_a_worker_go_on(shell: Shell) -> None:
    """The worker gives it up while it waits, and hears of the decision by itself."""
    _submitted(shell, "--autonomy", "manual", agent="sender")
    worker = _worker(shell)
    hear(worker, "decision")
    held = shell("show", "r1", "--json").json
    [question] = held["questions"]
    approved = shell("approve", "r1", question["id"])
    hear(worker, "completed")
    code, _ = _ended(worker, signal.SIGTERM)

    assert ("suspended", 0, 0) == (held["status"], approved.code, code)
    assert {"r1": "done"} == _statuses(shell)
    assert "a\n" == (shell.folder / "sent").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_f066_a_worker_that_is_told_to_stop_leaves_every_run_in_order(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    """What is under way ends and is recorded, nothing new begins, no lease is held, and the next
    worker goes on at once.
    """
    hold = shell.touch("hold-send")
    _submitted(shell, agent="sender")
    _submitted(shell, run="r2")
    worker = _worker(shell, "--concurrency", "1", "--grace", "60")
    hear(worker, "sending" if _first(worker) == "r1" else "completed")
    if "r2" in {run for run, status in _statuses(shell).items() if status == "done"}:
        hear(worker, "sending")
    worker.send_signal(number)
    hear(worker, "left")
    hold.unlink()
    _, err = worker.communicate(timeout=60)

    kinds = [entry["kind"] for entry in shell("show", "r1", "--json").json["entries"]]
    assert code == worker.returncode, err
    assert "tool_finished" in kinds
    assert "ready" == _statuses(shell)["r1"]
    assert 0 == shell("worker", "agents:looker", "agents:sender", "--until-idle").code
    assert {"r1": "done", "r2": "done"} == _statuses(shell)
    assert "a\n" == (shell.folder / "sent").read_text()


def _first(worker: "subprocess.Popen[bytes]") -> str:
    """The run that the worker takes first."""
    assert worker.stderr is not None
    while not (line := worker.stderr.readline()).startswith(b"claimed "):
        assert line
    return line.split()[1].decode()


def test_f066_the_second_signal_stops_a_worker_at_once(shell: Shell) -> None:
    """However long the grace; the effect that was under way is asked about."""
    hold = shell.touch("hold-send")
    _submitted(shell, agent="sender")
    worker = _worker(shell, "--grace", "3600")
    hear(worker, "sending")
    worker.send_signal(signal.SIGTERM)
    hear(worker, "left")
    code, _ = _ended(worker, signal.SIGTERM)
    hold.unlink()

    worked = shell("worker", "agents:sender", "--until-idle")

    assert (130, 0) == (code, worked.code)
    assert "suspended r1 (sender): waits for 1 decision" in worked.err
    assert "a\n" == (shell.folder / "sent").read_text()


def test_f067_a_run_whose_worker_was_killed_is_taken_over_at_once(shell: Shell) -> None:
    """Its lease has not lapsed; its owner is proved dead. Whoever had begun it."""
    shell.interrupted()

    worked = shell("worker", "agents:looker", "--until-idle")

    assert "claimed r1 (looker): its worker was gone" in worked.err
    assert {"r1": "done"} == _statuses(shell)


def test_a_worker_that_leaves_runs_failing_says_so(shell: Shell) -> None:
    """With 1; the run is as it was."""
    (shell.folder / "broken.py").write_text(
        "from agentkit import Agent\nagent = Agent('broken', 'nobody:knows')\n"
    )
    assert 0 == shell("submit", "broken", "Do it.", "--run-id", "r1").code

    worked = shell("worker", "broken:agent", "--until-idle")

    assert 1 == worked.code
    assert "failed r1 (broken): " in worked.err
    assert "(tried again in 1 s)" in worked.err
    assert {"r1": "submitted"} == _statuses(shell)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("worker", "agents:looker", "--store", "memory://"), 2, "belongs to one process"),
        (("submit", "looker", "Do it.", "--store", "memory://"), 2, "belongs to one process"),
        (("worker", "agents:nobody"), 2, "must name an agentkit.Agent"),
        (("worker", "agents:looker", "agents:twin"), 2, "two agents go by the name 'looker'"),
        (("worker",), 2, "Missing argument"),
        (("worker", "agents:looker", "--store", "sqlite:////proc/none/runs.db"), 6, "Error"),
        (("submit", "looker", " "), 2, "non-empty"),
        (("submit", "a\x07", "Do it."), 2, "control characters"),
    ],
)
def test_what_cannot_work_is_refused(
    shell: Shell, arguments: tuple[str, ...], code: int, why: str
) -> None:
    """Before anything is run."""
    with (shell.folder / "agents.py").open("a") as file:
        file.write("\ntwin = Agent('looker', 'x')\n")

    done = shell(*arguments)

    assert code == done.code, done
    assert why in done.err
    assert "Traceback" not in done.err


def test_a_submitted_run_can_be_made_by_whoever_resumes_it(shell: Shell) -> None:
    """A submission is a run like any other: no worker is needed for it."""
    _submitted(shell)

    resumed = shell("resume", "r1")

    assert (0, "It is value of a\n") == (resumed.code, resumed.out)
