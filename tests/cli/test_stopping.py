"""`agentkit cancel` and `pause`, against workers in other processes, living and dead."""

import itertools

import pytest

from tests.cli.kit import Shell, hear


def kinds(shell: Shell) -> list[str]:
    """The kinds of the run's entries."""
    return [entry["kind"] for entry in shell("show", "r1", "--json").json["entries"]]


@pytest.mark.parametrize(
    ("agent", "task", "hold", "mark", "outcome"),
    [
        pytest.param("looker", "Look at a.", "hold-model", "asked", None, marks=pytest.mark.slow),
        ("looker", "Look at a.", "hold-tool", "looking", "cancelled"),
        ("sender", "Send a.", "hold-send", "sending", "in_doubt"),
    ],
)
def test_a_cancel_reaches_a_worker_in_another_process(  # noqa: PLR0917 - what is held, and how it ends
    shell: Shell, agent: str, task: str, hold: str, mark: str, outcome: str | None
) -> None:
    """During a model call, a read and an effect: the worker hears it within a heartbeat,
    leaves with 1, and the run is cancelled for good.
    """
    shell.touch(hold)
    worker = shell.start("run", f"agents:{agent}", task, "--run-id", "r1")
    hear(worker, mark)

    done = shell("cancel", "r1", "--by", "ann", "--why", "wrong order", "--wait", "60")
    _, err = worker.communicate(timeout=60)

    assert (0, 1) == (done.code, worker.returncode), (done, err)
    assert b"cancelled: wrong order" in err
    assert "cancelled" in done.out
    assert (outcome == "in_doubt") == ("may have taken effect all the same: send" in done.out)
    assert "cancelled" == kinds(shell)[-1]
    shown = shell("show", "r1").out
    assert "cancel  asked for by ann wrong order" in shown
    assert "end     cancelled by ann wrong order" in shown
    assert outcome is None or f" {outcome}" in shown
    again = shell("resume", "r1")
    assert (1, "cancelled") == (again.code, kinds(shell)[-1])


def test_f067_an_interrupted_run_is_cancelled_at_once(shell: Shell) -> None:
    """F067: kill -9, then cancel: its worker is proved dead, so the end is recorded at once, and
    neither `run` nor `resume` nor a decision brings the run back.
    """
    shell.interrupted()

    done = shell("cancel", "r1", "--wait", "0", "--json")
    again = shell("run", "agents:looker", "Look at a.", "--run-id", "r1")

    assert (0, "cancelled") == (done.code, done.json["status"])
    assert 1 == again.code
    assert "cancelled" == shell("runs", "--json").json[0]["status"]
    assert "cancelled" == kinds(shell)[-1]
    assert 4 == shell("unpark", "r1").code
    late = shell("cancel", "r1", "--by", "ann")
    assert (0, "cancelled before, by command line\n") == (late.code, late.out)


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", list(itertools.permutations(("runs", "resume", "cancel"))), ids="-".join
)
def test_f067_after_kill_9_everything_works_at_once_in_each_order(
    shell: Shell, order: tuple[str, ...]
) -> None:
    """F067: nobody is waited for. Until something is done the run is shown as interrupted; the
    first of `resume` and `cancel` ends it, and the other one changes nothing then.
    """
    shell.interrupted()
    status = "interrupted"
    for command in order:
        if command == "runs":
            assert status == shell("runs", "--json").json[0]["status"]
        elif command == "resume":
            done = shell("resume", "r1", "--wait", "0")
            assert (1 if status == "cancelled" else 0) == done.code, done.err
            status = "done" if status == "interrupted" else status
        else:
            stopped = shell("cancel", "r1", "--wait", "0")
            assert (4 if status == "done" else 0) == stopped.code, stopped.err
            status = "cancelled" if status == "interrupted" else status

    assert kinds(shell)[-1] == {"done": "finished", "cancelled": "cancelled"}[status]


def test_f069_a_decision_after_a_cancel_is_refused_with_the_reason(shell: Shell) -> None:
    """F069: exit code 4, and it says who cancelled the run and why; nothing is sent."""
    question = shell.suspended()
    sent = (shell.folder / "sent").read_text()
    shell("cancel", "r1", "--by", "ann", "--why", "ordered twice")

    late = shell("resume", "r1", "--answer", f"{question}=run_again")

    assert 4 == late.code
    assert "was cancelled by ann (ordered twice)" in late.err
    assert sent == (shell.folder / "sent").read_text()


def test_a_pause_lets_a_worker_end_what_it_does(shell: Shell) -> None:
    """The tool that runs ends and is recorded, the model is not asked again, and the worker leaves
    with 5; `unpark` lets the next one go on from there.
    """
    held = shell.touch("hold-tool")
    worker = shell.start("run", "agents:looker", "Look at a.", "--run-id", "r1")
    hear(worker, "looking")
    paused = shell("pause", "r1", "--by", "ann", "--why", "prices")
    held.unlink()
    _, err = worker.communicate(timeout=60)

    assert (0, 5) == (paused.code, worker.returncode), err
    assert "pause   asked for by ann prices" in shell("show", "r1").out
    assert "parked" == shell("runs", "--json").json[0]["status"]
    assert {"tool_finished", "pause_asked"} == set(kinds(shell)[-2:])
    assert 5 == shell("run", "agents:looker", "Look at a.", "--run-id", "r1").code
    assert 0 == shell("unpark", "r1").code
    resumed = shell("resume", "r1")
    assert (0, "It is value of a\n") == (resumed.code, resumed.out)
