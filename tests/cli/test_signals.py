"""SIGTERM, SIGINT and SIGKILL of a real worker: the run is resumable at once."""

import signal

import pytest

from tests.cli.kit import Shell, hear

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(("hold", "mark"), [("hold-model", "asked"), ("hold-tool", "looking")])
def test_f066_a_signal_leaves_the_run_resumable_at_once(
    shell: Shell, number: signal.Signals, hold: str, mark: str
) -> None:
    """F066: during a model call and during a tool alike: exit code 130, the lease is released, and
    the next process carries on without waiting.
    """
    held = shell.touch(hold)
    worker = shell.start("run", "agents:looker", "Look at a.", "--run-id", "r1", "--grace", "0")
    hear(worker, mark)
    worker.send_signal(number)
    _, err = worker.communicate(timeout=30)
    held.unlink()

    assert 130 == worker.returncode
    assert b"interrupted; the run is resumable: agentkit resume r1" in err
    assert b"Traceback" not in err
    listed = shell("runs", "--json").json
    assert [("r1", "ready")] == [(run["run"], run["status"]) for run in listed]
    resumed = shell("resume", "r1", "--wait", "0")
    assert (0, "It is value of a\n") == (resumed.code, resumed.out)
    kinds = [entry.get("why") for entry in shell("show", "r1", "--json").json["entries"]]
    assert "takeover" not in kinds


@pytest.mark.parametrize("number", SIGNALS)
def test_f066_a_signal_during_an_effect_leads_to_a_question(
    shell: Shell, number: signal.Signals
) -> None:
    """F066: the effect may have happened, so it is neither repeated nor dropped."""
    held = shell.touch("hold-send")
    worker = shell.start("run", "agents:sender", "Send a.", "--run-id", "r1", "--grace", "0.2")
    hear(worker, "sending")
    worker.send_signal(number)
    worker.communicate(timeout=30)
    held.unlink()

    resumed = shell("resume", "r1", "--wait", "0")

    assert (130, 5) == (worker.returncode, resumed.code)
    assert "send was started" in resumed.err
    assert "a\n" == (shell.folder / "sent").read_text()


@pytest.mark.parametrize("number", SIGNALS)
def test_f066_what_is_under_way_ends_after_a_signal(shell: Shell, number: signal.Signals) -> None:
    """F066: the tool has the grace to end; its outcome is recorded, nothing new begins, and the
    next process neither repeats nor asks.
    """
    held = shell.touch("hold-send")
    order = ("run", "agents:sender", "Send a.", "--run-id", "r1", "--grace", "60")
    worker = shell.start(*order)
    hear(worker, "sending")
    worker.send_signal(number)
    hear(worker, "60 s to end; again to stop at once")
    held.unlink()
    _, err = worker.communicate(timeout=60)
    resumed = shell("resume", "r1", "--wait", "0")

    assert 130 == worker.returncode, err
    assert b"interrupted; the run is resumable: agentkit resume r1" in err
    assert (0, "Done: sent a\n") == (resumed.code, resumed.out)
    assert "a\n" == (shell.folder / "sent").read_text()


def test_f066_the_second_signal_stops_at_once(shell: Shell) -> None:
    """F066: however long the grace is; the run is resumable all the same."""
    held = shell.touch("hold-tool")
    order = ("run", "agents:looker", "Look at a.", "--run-id", "r1", "--grace", "3600")
    worker = shell.start(*order)
    hear(worker, "looking")
    worker.send_signal(signal.SIGINT)
    hear(worker, "3600 s to end; again to stop at once")
    worker.send_signal(signal.SIGINT)
    worker.communicate(timeout=60)
    held.unlink()

    assert 130 == worker.returncode
    assert "It is value of a\n" == shell("resume", "r1", "--wait", "0").out


def test_an_interrupted_command_tells_so_in_json(shell: Shell) -> None:
    """With `--json` standard output is a document even then."""
    shell.touch("hold-tool")
    order = ("run", "agents:looker", "Look at a.", "--run-id", "a b", "--grace", "0", "--json")
    worker = shell.start(*order)
    hear(worker, "looking")
    worker.send_signal(signal.SIGTERM)
    out, _ = worker.communicate(timeout=30)

    assert 130 == worker.returncode
    assert b'"error": "Interrupted"' in out
    assert b"agentkit resume 'a b'" in out


def test_a_killed_worker_is_shown_as_interrupted_at_once(shell: Shell) -> None:
    """SIGKILL leaves a lease that has not lapsed; its holder is proved dead, so list, count and
    timeline say `interrupted`, and while it lives they say `running`.
    """
    hold = shell.touch("hold-tool")
    worker = shell.start("run", "agents:looker", "Look at a.", "--run-id", "r1")
    hear(worker, "looking")
    alive = shell("runs", "--json").json[0]["status"]
    worker.kill()
    worker.communicate()
    hold.unlink()

    listed = shell("runs")

    assert "running" == alive
    assert "interrupted" in listed.out
    assert "resume it" in listed.out
    assert 1 == shell("status", "--json").json["runs"]["interrupted"]
    assert "interrupted" == shell("show", "r1", "--json").json["status"]
    assert 0 == shell("resume", "r1", "--wait", "0").code
    assert "CRASH" in shell("show", "r1").out
