"""A user's slips are told as what they are, before anything is killed."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.types import ToolCall
from agentkit.core.testing import FakeLLM, Turn
from agentkit.testing.crashtest import crash_test
from tests.crashtest import planted

HERE = "tests.crashtest.planted"
LOOK = {"name": "look", "arguments": {"item": "a"}}


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("planted", "must look like package.module:variable"),
        ("nowhere.at.all:agent", "cannot import 'nowhere.at.all'"),
        (f"{HERE}:nothing", "has no 'nothing'"),
        (f"{HERE}:nobody", "is of type 'int'; it must be an agentkit.Agent"),
        (f"{HERE}:outside", "was called and raised KeyError"),
    ],
)
def test_a_reference_that_names_no_agent_is_refused(reference: str, says: str) -> None:
    """The message says whether it does not parse, import, exist or fit."""
    with pytest.raises(InvalidSpec, match=says):
        crash_test(reference)


def test_an_error_in_the_module_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The innermost line of the user's own code."""
    (tmp_path / "faulty_shop.py").write_text("import json\n\nprice = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(InvalidSpec, match=r"ZeroDivisionError.*faulty_shop.py, line 3"):
        crash_test("faulty_shop:agent")


def test_what_is_not_at_the_top_of_a_module_is_refused() -> None:
    """A new process could not import it."""
    local = Agent("local", FakeLLM("hi"))

    def make() -> Agent:
        return local

    with pytest.raises(InvalidSpec, match="agent 'local' is not a variable at the top of a module"):
        crash_test(local)
    with pytest.raises(InvalidSpec, match=r"function 'test_what.*make' is not a variable at the"):
        crash_test(make)


def test_a_real_model_is_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name or as an object: the message lists what can answer instead."""

    class Real(FakeLLM):
        """Stands for one of the library's own."""

    Real.__module__ = "agentkit.models.providers.openai"
    real = Agent("real", Real("hi"))

    with pytest.raises(InvalidSpec, match=r"real model 'anthropic:claude-.*--model script.json"):
        crash_test(planted.costly)
    monkeypatch.setattr(planted, "real", real, raising=False)
    with pytest.raises(InvalidSpec, match="agent 'real' has the real model"):
        crash_test(real)
    bare = Agent("bare")
    monkeypatch.setattr(planted, "real", bare)
    with pytest.raises(InvalidSpec, match="agent 'bare' has no model of its own"):
        crash_test(bare)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("[", "Input data was truncated. A script is a list of turns"),
        ({"turns": []}, "Expected `array`, got `object`. A script is a list of turns"),
        ([], "there is no turn"),
        ([{"text": "hi"}], r"unknown field `text` - at `\$\[0\]`"),
        ([{"tool_calls": [{"tool": "look"}]}], "unknown field `tool`|missing required"),
        ([{"tool_calls": [LOOK]}], "the last turn calls tools"),
        ([{"content": "a"}, {"content": "b"}], "turn 1 of 2 calls no tool"),
        (
            [{"tool_calls": [{"name": "lock"}]}, {}],
            "turn 1 of the model's answers calls 'lock', .* did you mean 'look'",
        ),
        (
            [{"tool_calls": [{"name": "look", "arguments": {"itm": "a"}}]}, {}],
            "calls 'look' with wrong arguments",
        ),
        (
            [{"tool_calls": [{"name": "look", "arguments": "{oops"}]}, {}],
            "arguments that are no JSON object: '{oops'",
        ),
    ],
)
def test_a_script_with_a_slip_is_refused(tmp_path: Path, script: Any, says: str) -> None:
    """The message says where, and what a script looks like."""
    path = tmp_path / "script.json"
    path.write_text(script if isinstance(script, str) else json.dumps(script))

    with pytest.raises(InvalidSpec, match=says):
        crash_test(planted.costly, model=path)


def test_a_place_that_no_worker_passes_proves_nothing() -> None:
    """It is refused with the places that there are, and never reported as safe."""
    with pytest.raises(InvalidSpec, match=r"'append:after@77', so nobody .* acquire:before@0, "):
        crash_test(f"{planted.__name__}:sound", at="append:after@77")


def test_a_script_that_is_not_there_is_refused() -> None:
    """With the reason of the system."""
    with pytest.raises(InvalidSpec, match=r"'none.json' cannot be read: No such file"):
        crash_test(planted.costly, model="none.json")


def test_turns_that_a_script_cannot_tell_are_refused() -> None:
    """An error or a stop reason is no part of a script."""
    odd: Any = [{"content": "hi"}]
    with pytest.raises(InvalidSpec, match="turn 1: a crash test's script has content and"):
        crash_test(planted.costly, model=[Turn("x", error=ValueError())])
    with pytest.raises(InvalidSpec, match=r"are Turn\(…\) each"):
        crash_test(planted.costly, model=odd)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tool": "lok"}, "has no tool 'lok'; it has look, pay, mail"),
        ({"varies": ["lok"]}, "has no tool 'lok'"),
        ({"borders": ["appendix"]}, "there is no border 'appendix'; there are acquire:before"),
        ({"at": "append:after#2"}, "is no place to die; one looks like append:after@2"),
        ({"answer": "perhaps"}, "'perhaps' is no answer; choose one of run_again, skip, failed"),
    ],
)
def test_an_option_that_names_nothing_is_refused(options: dict[str, Any], says: str) -> None:
    """With what there is."""
    with pytest.raises(InvalidSpec, match=says):
        crash_test(f"{HERE}:sound", **options)


def test_a_folder_that_is_there_is_not_written_into(tmp_path: Path) -> None:
    """`keep` names a new one."""
    with pytest.raises(InvalidSpec, match="cannot be made as a new folder: File exists"):
        crash_test(f"{HERE}:sound", keep=str(tmp_path))


def test_an_agent_that_never_ends_is_told_so() -> None:
    """The run that nobody kills is parked at its limit; there is nothing to compare with."""
    with pytest.raises(InvalidSpec, match=r"nobody kills did not finish.*it is parked: max_iter"):
        crash_test(planted.endless)


def test_a_model_that_raises_is_told_with_its_words() -> None:
    """What the agent's own fake raises ends the run that nobody kills."""
    with pytest.raises(InvalidSpec, match=r"nobody kills did not finish.*KeyError: 'moods'"):
        crash_test(planted.raising)


def test_a_tool_that_always_fails_is_a_note() -> None:
    """Its error is what the model is told, with and without kills; but it proves little."""
    report = crash_test(planted.broken, at="tool:after:failing@1")

    assert report.safe, report.text()
    assert ["failing ended with 'error' even where nobody was killed"] == [
        note.partition(" (")[0] for note in report.notes
    ]


def test_a_script_may_come_from_python() -> None:
    """Turns replace the agent's own model; a tool that they never call is untested."""
    turns = [Turn("", tool_calls=(ToolCall("x", "look", {"item": "z"}),)), Turn("Fine.")]

    report = crash_test(planted.sound, model=turns, at="tool:after:look@1")

    assert report.safe, report.text()
    assert 1 == report.kills
    assert ("safe", "untested") == (report.tool("look").verdict, report.tool("mail").verdict)
