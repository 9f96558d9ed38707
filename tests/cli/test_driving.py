"""`run` and `resume`: results, exit codes, decisions, one worker at a time."""

import importlib.util
import sys

import pytest

from agentkit.cli.driving import parse_answers, read_value
from agentkit.core.contracts.errors import InvalidDecision
from agentkit.core.contracts.types import Decision
from agentkit.testing.provider import Answer, StrictProvider
from tests.cli.kit import Shell, hear


def test_run_prints_the_answer_alone_on_standard_output(shell: Shell) -> None:
    """What happens on the way goes to standard error: id, calls, results, steps, usage."""
    done = shell("run", "agents:looker", "Look at a.", "--run-id", "r1")

    assert (0, "It is value of a\n") == (done.code, done.out)
    told = [line for line in done.err.splitlines() if not line.startswith("<")]
    assert "run r1" == told[0]
    assert '  → look {"item":"a"}' in told
    assert "  ← look: value of a" in told
    assert "  · iteration:1" in told
    assert told[-1].startswith("completed · 2 answers · ")


def test_run_again_gives_the_stored_result(shell: Shell) -> None:
    """The same id and task ask no model and run no tool."""
    first = shell("run", "agents:looker", "Look at a.", "--run-id", "r1")
    again = shell("run", "agents:looker", "Look at a.", "--run-id", "r1")

    assert (0, first.out) == (again.code, again.out)
    assert "<asked>" not in again.err
    assert "→" not in again.err


def test_run_prints_its_result_as_one_document(shell: Shell) -> None:
    """`--json`: fields by name, and nothing on standard error but what the agent says itself."""
    told = shell("run", "agents:talker", "Talk.", "--run-id", "r1", "--json")

    assert (0, "") == (told.code, told.err)
    assert ("r1", "hello", "completed", False) == (
        told.json["run_id"],
        told.json["output"],
        told.json["stop_reason"],
        told.json["partial"],
    )
    assert 1 == told.json["usage"]["requests"]


def test_a_run_without_an_id_gets_one_that_resumes(shell: Shell) -> None:
    """The id that is shown is the run's."""
    done = shell("run", "agents:talker", "Talk.", "--json")

    again = shell("resume", done.json["run_id"], "--json")

    assert (0, done.json) == (again.code, again.json)


def test_an_id_belongs_to_its_task_and_agent(shell: Shell) -> None:
    """Another task or another agent: exit code 4, and the run is as it was."""
    first = shell("run", "agents:talker", "Talk.", "--run-id", "r1", "--json")

    assert 4 == shell("run", "agents:talker", "Talk more.", "--run-id", "r1").code
    assert 4 == shell("run", "agents:looker", "Talk.", "--run-id", "r1").code
    assert first.json == shell("resume", "r1", "--json").json


def test_resume_carries_an_interrupted_run_on(shell: Shell) -> None:
    """Its worker was killed in a tool without effects: the tool runs again, the answer before it
    is not bought again.
    """
    shell.interrupted()

    done = shell("resume", "r1")

    assert (0, "It is value of a\n") == (done.code, done.out)
    assert '  → look {"item":"a"} (attempt 2)' in done.err
    assert 1 == done.err.count("<asked>")


def test_resume_imports_nothing_from_beyond_the_current_folder(shell: Shell) -> None:
    """A store is data: the agent that it names is imported from here, or named by the caller."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "r1").code
    store = f"sqlite:///{shell.folder}/runs.db"
    (shell.folder / "agents.py").rename(shell.folder / "elsewhere.py")

    refused = shell("resume", "r1", "--store", store)
    named = shell("resume", "r1", "--store", store, "--agent", "elsewhere:talker")

    assert 2 == refused.code
    assert "--agent module:variable" in refused.err
    assert (0, "hello\n") == (named.code, named.out)


def test_a_question_is_shown_and_answered(shell: Shell) -> None:
    """A worker died after a mail left: exit code 5 and the question; `done` ends it, unrepeated."""
    question = shell.suspended()

    waiting = shell("resume", "r1")
    started = shell("run", "agents:sender", "Send a.", "--run-id", "r1")
    done = shell("resume", "r1", "--answer", f'{question}=done:"sent a"')

    assert 5 == waiting.code
    assert f"{question}: send was started" in waiting.err
    assert '  call:    send {"item":"a"}' in waiting.err
    assert "  answers: done, failed, run_again, skip" in waiting.err
    assert f"agentkit resume r1 --answer {question}=…" in waiting.err
    assert 5 == started.code
    assert question in started.err
    assert (0, "Done: sent a\n") == (done.code, done.out)
    assert "a\n" == (shell.folder / "sent").read_text()


def test_run_again_runs_the_call_again(shell: Shell) -> None:
    """A human asked for the second effect, so there are two."""
    question = shell.suspended()

    done = shell("resume", "r1", "--answer", f"{question}=run-again")

    assert (0, "Done: sent a\n") == (done.code, done.out)
    assert "a\na\n" == (shell.folder / "sent").read_text()


def test_a_decision_that_does_not_fit_changes_nothing(shell: Shell) -> None:
    """Exit code 2, and 3 for an unknown one; the question stays open and nothing ran."""
    question = shell.suspended()

    codes = []
    for text in ("q999=skip", f"{question}=perhaps", question, f"{question}=done"):
        refused = shell("resume", "r1", "--answer", text)
        codes.append(refused.code)
        assert "Error: " in refused.err
    assert [3, 2, 2, 2] == codes
    waiting = shell("show", "r1", "--json")
    assert ["suspended", [question]] == [
        waiting.json["status"],
        [open_["id"] for open_ in waiting.json["questions"]],
    ]
    assert "a\n" == (shell.folder / "sent").read_text()


def test_answers_are_words_with_values() -> None:
    """JSON where it is JSON, else text; falsy values count; the first colon ends the word."""
    parsed = parse_answers(
        [
            "q1=skip",
            "q2=run-again",
            'q3=done:{"id": 1}',
            "q4=done:0",
            "q5=failed:no such order: 7",
            'q6=done:""',
            "q7=done:a=b",
        ]
    )

    by = "command line"
    assert {
        "q1": Decision("skip", actor=by),
        "q2": Decision("run_again", actor=by),
        "q3": Decision("done", {"id": 1}, actor=by),
        "q4": Decision("done", 0, actor=by),
        "q5": Decision("failed", "no such order: 7", actor=by),
        "q6": Decision("done", "", actor=by),
        "q7": Decision("done", "a=b", actor=by),
    } == parsed


@pytest.mark.parametrize(
    "answers",
    [["q1"], ["q1="], ["=skip"], ["q1=done"], ["q1=failed:"], ["q1=skip", "q1=run_again"]],
)
def test_an_answer_that_says_too_little_is_refused(answers: list[str]) -> None:
    """No question, no answer, no value where one is due, or two answers to one question."""
    with pytest.raises(InvalidDecision, match="--answer"):
        parse_answers(answers)


def test_a_parked_run_needs_someone(shell: Shell) -> None:
    """At its limit of answers the run is parked: exit code 5 and the reason, in both forms."""
    (shell.folder / "short.py").write_text(
        "from agents import *\n"
        "agent = Agent('short', FakeLLM(shout), cognition=ReActCognition([send], "
        "max_iterations=1))\n"
    )

    told = shell("run", "short:agent", "Send a.", "--run-id", "r1")
    document = shell("run", "short:agent", "Send a.", "--run-id", "r1", "--json")

    assert (5, 5) == (told.code, document.code)
    assert "max_iterations: " in told.err
    assert "once that is mended: agentkit resume r1\n" in told.err
    assert "max_iterations" == document.json["stop_reason"]


def test_f059_two_commands_on_one_run_exclude_each_other(shell: Shell) -> None:
    """F059: while one works, the other is refused with exit code 4 and told who holds the run;
    the run goes on undisturbed, and one that waits takes its result.
    """
    hold = shell.touch("hold-tool")
    worker = shell.start("run", "agents:looker", "Look at a.", "--run-id", "r1")
    hear(worker, "looking")

    for command in (["run", "agents:looker", "Look at a.", "--run-id"], ["resume"]):
        refused = shell(*command, "r1", "--wait", "0")
        assert 4 == refused.code, refused
        assert "r1" in refused.err
        assert str(worker.pid) in refused.err
    waiting = shell.start("resume", "r1", "--wait", "60")
    hold.unlink()
    out, _ = worker.communicate(timeout=60)
    waited, _ = waiting.communicate(timeout=60)

    assert (0, b"It is value of a\n") == (worker.returncode, out)
    assert (0, b"It is value of a\n") == (waiting.returncode, waited)


def test_f115_a_tenant_sees_its_own_runs_alone(shell: Shell) -> None:
    """F115: the same id is another run for each tenant; list, count, show and resume agree."""
    shell("run", "agents:talker", "Talk.", "--run-id", "mine", "--tenant", "a")

    for tenant in ("b", ""):
        mine = ["--tenant", tenant]
        assert 3 == shell("show", "mine", *mine).code
        assert 3 == shell("resume", "mine", "--agent", "agents:talker", *mine).code
        assert [] == shell("runs", "--json", *mine).json
        assert 0 == shell("status", "--json", *mine).json["total"]
    assert ["mine"] == [run["run"] for run in shell("runs", "--json", "--tenant", "a").json]
    assert 0 == shell("resume", "mine", "--tenant", "a").code


HOSTILE = "../../x : {} % # * ? 'a\" $(touch pwned) \u00fc \u202e.db"


def test_f117_a_hostile_id_works_like_any_other(shell: Shell) -> None:
    """F117: nothing is written beside the store, and every command finds the run."""
    before = {path.name for path in shell.folder.iterdir()}
    above = {path.name for path in shell.folder.parent.iterdir()}

    ran = shell("run", "agents:talker", "Talk.", "--run-id", HOSTILE, "--json")

    assert (0, HOSTILE) == (ran.code, ran.json["run_id"])
    assert (0, "hello\n") == shell("resume", HOSTILE)[:2]
    assert HOSTILE == shell("show", HOSTILE, "--json").json["run"]
    assert [HOSTILE] == [run["run"] for run in shell("runs", "--json").json]
    made = {path.name for path in shell.folder.iterdir()} - before - {"__pycache__"}
    assert {"runs.db"} == {name.removesuffix("-wal").removesuffix("-shm") for name in made}
    assert above == {path.name for path in shell.folder.parent.iterdir()}


def test_the_model_may_be_chosen_on_the_command_line(shell: Shell) -> None:
    """`--model` with an unknown provider: exit code 2 and the known ones."""
    done = shell("run", "agents:talker", "Talk.", "--model", "acme:x")

    assert 2 == done.code
    assert "anthropic:<model>" in done.err


@pytest.mark.skipif(importlib.util.find_spec("openai") is None, reason="needs the SDK")
@pytest.mark.parametrize("of_agent", ["'anthropic:claude-x'", "'openai:gpt-y'", "FakeLLM('no')"])
def test_the_chosen_model_is_the_one_that_is_asked(shell: Shell, of_agent: str) -> None:
    """Whatever the agent's own model is, of the same provider or another one."""
    (shell.folder / "mine.py").write_text(
        f"from agents import *\nagent = Agent('mine', {of_agent}, 'Talk.')\n"
    )
    with StrictProvider([Answer(text="Hi.")]) as provider:
        shell.environment["OPENAI_API_KEY"] = provider.api_key
        shell.environment["OPENAI_BASE_URL"] = provider.openai_url
        shell.environment["NO_PROXY"] = "127.0.0.1"
        done = shell("run", "mine:agent", "Talk.", "--model", "openai:gpt-x")
        asked = [call.model for call in provider.calls]

    assert (0, "Hi.\n") == (done.code, done.out)
    assert ["gpt-x"] == asked


def test_the_interpreter_is_the_one_that_runs_the_tests(shell: Shell) -> None:
    """These tests start what is under test, not some other installation."""
    (shell.folder / "where.py").write_text(
        "import agentkit, sys\nraise RuntimeError(sys.executable + ' ' + agentkit.__file__)\n"
    )

    done = shell("run", "where:agent", "Talk.")

    assert sys.executable in done.err
    assert "agentkit/__init__.py" in done.err


@pytest.mark.parametrize(
    "value", ['{"cents":1,"cents":777}', '[{"a":1,"a":2}]', "NaN", '{"cents":Infinity}', "1e999"]
)
def test_a_value_that_is_not_the_one_that_was_read_is_refused(value: str) -> None:
    """Of a member that is named twice the last one would count."""
    with pytest.raises(InvalidDecision, match="not the JSON of one value"):
        parse_answers([f"q4=edit:{value}"])


def test_a_text_that_is_no_json_is_a_text() -> None:
    """Whatever it begins like."""
    texts = ["no such order", "{", "1,2", 'a "b"', '1, "value": 2']

    assert texts == [read_value(text) for text in texts]
    assert [{"a": [1.5, None]}, "x"] == [read_value('{"a": [1.5, null]}'), read_value('"x"')]
