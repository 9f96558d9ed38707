"""Failures that users of such systems met, by their numbers: each tried with real processes."""

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from agentkit.core.contracts.heads import Row
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision, JSONObject
from agentkit.core.contracts.values import digest
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.crash import Ended, ForkServer
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.effects import Effect
from agentkit.testing.invariants import Evidence, check, read_rows, report
from tests.crash.workers import RUN, TOOLS, Job, final_text

BOUND_SECONDS = 20.0
T = TypeVar("T")
Turns = tuple[tuple[tuple[str, str], ...], ...]


@pytest.fixture(scope="module")
def jobs() -> Iterator[ForkServer]:
    """Forks workers that do a `Job`."""
    with ForkServer("tests.crash.workers:work") as server:
        yield server


class Case:
    """One run and its workers."""

    def __init__(self, jobs: ForkServer, path: Path, turns: Turns) -> None:
        path.mkdir(exist_ok=True)
        self.jobs = jobs
        self.folder = Folder(path)
        self.job = Job(str(path), turns)
        self.reads: list[tuple[Row, ...]] = []

    def run(self, **changes: object) -> Ended:
        """A worker to its end."""
        ended = self.jobs.run(self._order(changes))
        self.read()
        return ended

    def kill_when(self, condition: Callable[[], bool], **changes: object) -> None:
        """A worker that gets SIGKILL as soon as the condition is true."""
        self.signal_when(condition, signal.SIGKILL, **changes)

    def signal_when(
        self, condition: Callable[[], bool], number: signal.Signals, **changes: object
    ) -> Ended:
        """A worker that gets a signal as soon as the condition is true."""
        pid = self.jobs.start(self._order(changes))
        until = time.monotonic() + BOUND_SECONDS
        while not condition():
            assert time.monotonic() < until, "the condition did not come true"
            os.sched_yield()
        os.kill(pid, number)
        ended = self.jobs.wait()
        assert number != signal.SIGKILL or "killed" == ended.how
        self.read()
        return ended

    def finish(self) -> RunState:
        """Workers until the run has ended; what happened outside is looked up for questions."""
        for _ in range(10):
            state = self.state()
            if state.end is not None:
                return state
            done = {effect.digest: effect.result for effect in self.folder.effects.effects()}
            decisions = {
                question.id: Decision("done", done[question.digest])
                if question.digest in done
                else Decision("run_again")
                for question in state.questions
            }
            ended = self.run(decisions=decisions if state.status == "suspended" else {})
            assert "completed" == ended.how, ended.detail
        raise AssertionError("the run did not end")

    def assert_sound(self) -> None:
        """The run ended with its undisturbed answer and no invariant is broken."""
        found = check(
            Evidence(
                run=RUN,
                rows=self.reads[-1],
                head=_in_loop(self.folder, lambda store: store.head(RUN)),
                effects=tuple(self.folder.effects.read()),
                promises=tuple(self.folder.promises.read()),
                answers=tuple(self.folder.answers.read()),
                tools=TOOLS,
                earlier=tuple(self.reads),
                output=final_text(self.job),
                scope="",
            )
        )
        assert not found, report(found)

    def state(self) -> RunState:
        """The run as it is in the store."""
        return _in_loop(self.folder, lambda store: load(store, RUN))

    def read(self) -> None:
        """Remember the journal as it is."""
        self.reads.append(_in_loop(self.folder, lambda store: read_rows(store, RUN)))

    def runs_of(self, item: str) -> int:
        """How often a call was made."""
        return sum(one.kind == "run" for one in self._of(item))

    def effects_of(self, item: str) -> int:
        """How often it changed something outside."""
        return sum(one.kind == "effect" for one in self._of(item))

    def finished(self) -> set[str]:
        """Items whose outcome is durable."""
        turn = self.state().main.turn
        calls = [] if turn is None else turn.calls
        return {_item(call.record.arguments) for call in calls if call.settled}

    def requests(self) -> list[dict[str, object]]:
        """What was asked of the model, in order."""
        return [dict(line) for line in self.folder.answers.read() if line["kind"] == "asked"]

    def _of(self, item: str) -> list[Effect]:
        names = {name for turn in self.job.turns for name, one in turn if one == item}
        wanted = {_digest(name, item) for name in names}
        return [one for one in self.folder.effects.read() if one.digest in wanted]

    def _order(self, changes: dict[str, object]) -> JSONObject:
        job = msgspec.structs.replace(self.job, **changes)
        order: JSONObject = msgspec.to_builtins(job)
        return order


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("tool", ["read", "keyed", "plain"])
def test_f001_stopped_in_its_only_tool_a_run_asks_with_one_result_for_each_call(
    jobs: ForkServer, tmp_path: Path, tool: str, how: signal.Signals
) -> None:
    """F001: killed or cancelled before the only call of a turn returned; the rule that closes the
    call needs no sibling that finished.
    """
    case = Case(jobs, tmp_path, (((tool, "a"),),))
    case.signal_when(lambda: case.runs_of("a") == 1, how, hang={"a"})
    case.finish()

    case.assert_sound()
    assert [["user"], ["user", "assistant", "tool"]] == [_roles(one) for one in case.requests()]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("tool", ["read", "keyed", "plain"])
def test_f003_killed_in_tool_number_k_the_run_goes_on_from_there(
    jobs: ForkServer, tmp_path: Path, tool: str, place: int
) -> None:
    """F003: SIGKILL in the first, the middle and the last of three calls."""
    items = ("a", "b", "c")
    case = Case(jobs, tmp_path, tuple(((tool, item),) for item in items))
    case.kill_when(lambda: case.runs_of(items[place]) == 1, hang={items[place]})
    case.finish()

    case.assert_sound()
    assert [1] * place == [case.runs_of(item) for item in items[:place]]


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param((("read", "a"), ("keyed", "b"), ("plain", "c")), id="three-tools"),
        pytest.param((("plain", "a"), ("plain", "b"), ("read", "c")), id="one-tool-twice"),
    ],
)
@pytest.mark.parametrize("number", range(8))
def test_f013_every_subset_of_finished_calls_is_kept_and_the_rest_is_made(
    jobs: ForkServer, tmp_path: Path, turn: tuple[tuple[str, str], ...], number: int
) -> None:
    """F013: of three parallel calls any subset has its outcome when the worker is killed: those
    are not made again, the others are, and exactly three results reach the model.
    """
    done = {item for place, (_, item) in enumerate(turn) if number >> place & 1}
    hang = {item for _, item in turn} - done
    case = Case(jobs, tmp_path, (turn,))
    if hang:
        case.kill_when(
            lambda: case.finished() == done and all(case.runs_of(item) for item in hang), hang=hang
        )
    else:
        assert "killed" == case.run(at="model:before#2").how
    case.finish()

    case.assert_sound()
    assert all(case.runs_of(item) == 1 for item in done)
    for name, item in turn:
        assert case.effects_of(item) == (0 if name == "read" else 1)
    assert ["user", "assistant", "tool", "tool", "tool"] == _roles(case.requests()[-1])


@pytest.mark.parametrize("tool", ["thread", "read"])
def test_f014_twenty_tools_that_end_at_the_same_moment_have_twenty_outcomes(
    jobs: ForkServer, tmp_path: Path, tool: str
) -> None:
    """F014: behind a barrier, in threads and as tasks; then kill and resume: none is lost and none
    is made again.
    """
    items = [f"i{number}" for number in range(20)]
    case = Case(jobs, tmp_path, (tuple((tool, item) for item in items),))

    assert "killed" == case.run(together=True, at="model:before#2").how
    assert set(items) == case.finished()
    case.finish()

    case.assert_sound()
    assert [1] * 20 == [case.runs_of(item) for item in items]


@pytest.mark.slow
def test_f018_results_stand_in_call_order_however_the_calls_ended(
    jobs: ForkServer, tmp_path: Path
) -> None:
    """F018: fifty runs whose five calls end in random orders, each killed somewhere and carried on
    in another order: no run gets stuck, and every transcript is the same.
    """
    turn = tuple(("read", item) for item in "abcde")
    transcripts = set()
    for seed in range(50):
        dice = random.Random(seed)
        case = Case(jobs, tmp_path / str(seed), (turn,))
        case.run(order=tuple(dice.sample("abcde", 5)), at=dice.randint(5, 24))
        rest = sorted(set("abcde") - case.finished())
        assert "completed" == case.run(order=tuple(dice.sample(rest, len(rest)))).how
        case.assert_sound()
        transcripts.add(str(case.requests()[-1]["messages"]))

    assert 1 == len(transcripts)


def test_f019_a_hanging_call_holds_nothing_back(jobs: ForkServer, tmp_path: Path) -> None:
    """F019: four of five calls end, the fifth hangs, and the worker is killed: the four outcomes
    are durable, and only the fifth is in doubt.
    """
    turn = (("plain", "a"), ("read", "b"), ("keyed", "c"), ("plain", "d"), ("plain", "e"))
    case = Case(jobs, tmp_path, (turn,))
    case.kill_when(lambda: case.finished() == set("abcd") and case.runs_of("e") == 1, hang={"e"})
    assert "completed" == case.run().how

    assert ["plain"] == [question.tool for question in case.state().questions]
    assert ["e"] == [_item(question.arguments) for question in case.state().questions]
    case.finish()
    case.assert_sound()
    assert [1] * 5 == [case.runs_of(item) for item in "abcde"]


@pytest.mark.parametrize("tool", [pytest.param("keyed", marks=pytest.mark.slow), "plain"])
def test_f045_three_effects_in_one_turn_happen_once_each_wherever_the_worker_dies(
    jobs: ForkServer, tmp_path: Path, tool: str
) -> None:
    """F045: killed at every border of the turn: with keys each effect happens exactly once and
    nobody is asked; without, it is in doubt and asked about, never repeated on our own.
    """
    items, killed, asked = "abc", 0, 0
    for number in itertools.count(1):
        case = Case(jobs, tmp_path / str(number), (tuple((tool, item) for item in items),))
        if case.run(at=number).how != "killed":
            break
        killed += 1
        case.run()
        asked += bool(case.state().questions)
        case.finish()
        case.assert_sound()
        assert [1, 1, 1] == [case.effects_of(item) for item in items]
    assert killed > 20
    assert (asked > 0) == (tool == "plain")


def test_f047_the_intent_is_on_disk_before_the_effect(jobs: ForkServer, tmp_path: Path) -> None:
    """F047: killed between the effect and its outcome: the intent is there, the policy is
    followed, and the effect is not had again.
    """
    case = Case(jobs, tmp_path, ((("plain", "a"),),))

    assert "killed" == case.run(at="effect:after").how
    turn = case.state().main.turn
    assert turn is not None
    assert turn.calls[0].started is not None
    assert turn.calls[0].outcome is None
    case.run()
    assert ["in_doubt"] == [question.kind for question in case.state().questions]
    case.finish()
    case.assert_sound()
    assert (1, 1) == (case.runs_of("a"), case.effects_of("a"))


@pytest.mark.slow
def test_f051_the_verdict_on_a_crash_does_not_depend_on_how_slow_the_store_is(
    jobs: ForkServer, tmp_path: Path
) -> None:
    """F051: SIGKILL at every border, with each of the first appends slow in turn: what is in doubt
    and what has happened is the same for each border.
    """
    numbers = itertools.count()
    verdicts: list[list[tuple[str, int]]] = []
    for slow in (0, 3):
        verdicts.append([])
        for border in itertools.count(1):
            case = Case(jobs, tmp_path / str(next(numbers)), ((("plain", "a"),), (("keyed", "b"),)))
            if case.run(at=border, slow=slow).how != "killed":
                break
            case.run()
            verdicts[-1].append((case.state().status, case.effects_of("a")))
            case.finish()
            case.assert_sound()
            assert (1, 1) == (case.effects_of("a"), case.effects_of("b"))
    assert all(verdict == verdicts[0] for verdict in verdicts)
    assert {"suspended", "done"} == {status for status, _ in verdicts[0]}


def test_f053_an_interrupted_attempt_counts(jobs: ForkServer, tmp_path: Path) -> None:
    """F053: a tool that allows one attempt and was in flight at the kill is not made again; the
    model is told so.
    """
    case = Case(jobs, tmp_path, ((("once", "a"),),))
    case.kill_when(lambda: case.runs_of("a") == 1, hang={"a"})
    assert "completed" == case.run().how

    assert 1 == case.runs_of("a")
    last = case.state().main.transcript.view()[-2]
    assert ("tool", True) == (last.role, last.is_error)
    assert "interrupted" in last.content


@pytest.mark.parametrize("border", ["append:before", "append:after"])
def test_f070_a_run_that_somebody_was_told_of_is_in_the_store(
    jobs: ForkServer, tmp_path: Path, border: str
) -> None:
    """F070: killed before the first append, nothing was promised and nothing is there; killed after
    it, the run is there with its task, though nobody had asked the model yet.
    """
    case = Case(jobs, tmp_path, ((("read", "a"),),))
    assert "killed" == case.run(at=border).how

    assert [] == case.folder.promises.read()
    assert [] == case.requests()
    started = case.state().started
    assert (started is None) == (border == "append:before")
    ended = case.run(resume="resume")
    if started is None:
        assert "RunNotFound" in ended.detail
        case.finish()
    else:
        assert "completed" == ended.how
    case.assert_sound()


def _in_loop(folder: Folder, ask: Callable[[JournalPort], Coroutine[None, None, T]]) -> T:
    async def asking() -> T:
        store = folder.store()
        try:
            return await ask(store)
        finally:
            await store.aclose()

    return asyncio.run(asking())


def _item(arguments: str) -> str:
    return str(json.loads(arguments)["item"])


def _digest(tool: str, item: str) -> str:
    return digest(tool, {"item": item})


def _roles(request: dict[str, object]) -> Sequence[str]:
    messages = request["messages"]
    assert isinstance(messages, list)
    return [message[0] for message in messages]
