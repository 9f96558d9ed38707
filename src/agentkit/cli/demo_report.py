"""What `demo` prints: a line per worker, the question, and the account before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agentkit.cli.exits import NEEDS_SOMEONE
from agentkit.cli.output import as_dict, print_table, say_styled
from agentkit.cli.timeline import timeline
from agentkit.core.contracts.entries import Entry, Finished, ToolFinished, ToolStarted
from agentkit.core.contracts.types import JSON, Question
from agentkit.state.journal.fold import RunState
from agentkit.testing.effects import Effect
from agentkit.testing.invariants import Violation

__all__ = ["Account", "Narrator", "Stage"]

_MODEL_CALL = "an answer of the model"


@dataclass(frozen=True)
class Stage:
    """The world after one worker. `answers_bought`: `None` where no ledger tells."""

    number: int
    pid: int
    command: str
    code: int
    killed_in: str
    answers_bought: int | None
    answers_recorded: int
    tool_runs: int
    effects: int
    versions: list[int]

    @property
    def end(self) -> str:
        """How the worker ended, for people."""
        if self.killed_in:
            return f"SIGKILL in the middle of {_shown(self.killed_in)}"
        if self.code == NEEDS_SOMEONE:
            return "stopped with a question"
        return f"failed with code {self.code}" if self.code else "finished the run"


@dataclass
class Account:
    """The whole story and its verdict."""

    model: str
    stages: list[Stage] = field(default_factory=list)
    questions: list[tuple[Question, str]] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    scripted: bool = True
    effects: list[Effect] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    state: RunState = field(default_factory=lambda: RunState(""))

    @property
    def sound(self) -> bool:
        """No invariant is broken, and a scripted demo killed wherever it promised to."""
        return not self.violations and not (self.scripted and self.missed)

    def lines(self) -> list[str]:
        """The run's timeline."""
        return list(timeline(self.entries, self.state, status=self.state.status))

    def by_tool(self) -> Iterator[tuple[str, int, int, int, int]]:
        """Per tool: functions entered, effects outside, effects refused by key, outcomes."""
        bodies = [entry.body for entry in self.entries]
        calls = {(b.turn, b.index): b.name for b in bodies if isinstance(b, ToolStarted)}
        names = [
            calls[b.turn, b.index]
            for b in bodies
            if isinstance(b, ToolFinished) and b.outcome == "ok"
        ]
        for name in dict.fromkeys(one.tool for one in self.effects):
            kinds = [one.kind for one in self.effects if one.tool == name]
            yield (
                name,
                kinds.count("run"),
                kinds.count("effect"),
                kinds.count("refused"),
                names.count(name),
            )

    def as_json(self) -> dict[str, JSON]:
        """All of it as one document."""
        return {
            "model": self.model,
            "workers": [{**msgspec.to_builtins(stage), "end": stage.end} for stage in self.stages],
            "questions": [
                {"question": question.id, "tool": question.tool, "answer": answer}
                for question, answer in self.questions
            ],
            "tools": [
                dict(
                    zip(("tool", "runs", "effects", "refused_by_key", "outcomes"), row, strict=True)
                )
                for row in self.by_tool()
            ],
            "usage": as_dict(self.state.usage),
            "output": self.state.end.output if isinstance(self.state.end, Finished) else "",
            "timeline": [*self.lines()],
            "not_killed_in": [*self.missed],
            "violations": [violation._asdict() for violation in self.violations],
            "sound": self.sound,
        }


class Narrator:
    """Tells the story as it happens. `quiet`: it does not."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def open(self, account: Account, task: str) -> None:
        """What is going to happen."""
        self._say("An agent works, and its workers are killed with SIGKILL.", "bold")
        self._say(f"task   {task}")
        self._say(f"model  {account.model}\n")

    def worker(self, stage: Stage) -> None:
        """One worker has ended."""
        style = "red" if stage.killed_in else "yellow" if stage.code else "green"
        head = f"worker {stage.number} (pid {stage.pid})  {stage.command}\n"
        self._say(head + f"         {stage.end}", style)

    def question(self, question: Question, answer: str) -> None:
        """The run waits for a human, and this is what one says who looked outside."""
        self._say(f"\n{question.id}  {question.prompt}", "yellow")
        self._say(f"    call     {question.tool} {question.arguments}")
        self._say(f"    answers  {', '.join(question.answers)}")
        where = "the outbox has the mail" if answer.startswith("done") else "nothing was sent"
        self._say(f"    We look: {where}. So --answer '{question.id}={answer}'\n", "cyan")

    def close(self, account: Account, *, kept: Path | None) -> None:
        """The account: before and after each death, per tool, and as a timeline."""
        self._say("\nAfter each worker", "bold")
        columns = ("worker", "end", "answers bought", "recorded", "tool runs", "effects")
        print_table((*columns, "versions"), [_cells(stage) for stage in account.stages])
        self._say("\nAt the end, per tool", "bold")
        names = ("tool", "runs", "effects outside", "refused by key", "results recorded")
        print_table(names, [(row[0], *map(str, row[1:])) for row in account.by_tool()])
        self._say("\nTimeline", "bold")
        for line in account.lines():
            self._say(line, "red" if "CRASH" in line[:24] else "")
        self._say("")
        self._verdict(account)
        if kept is not None:
            self._say(f"agentkit show demo --store sqlite:///{kept}/runs.db")

    def _verdict(self, account: Account) -> None:
        deaths = sum(bool(stage.killed_in) for stage in account.stages)
        usage = account.state.usage
        self._say(
            f"{deaths} workers killed; {usage.requests} answers recorded once each, "
            f"{usage.unknown} listed as possibly paid and lost."
        )
        for name in account.missed:
            self._say(f"No worker was killed in the middle of {_shown(name)}.", "yellow")
        for violation in account.violations:
            self._say(f"BROKEN {violation.invariant}: {violation.what}", "bold red")
        if not account.violations:
            self._say("Every invariant holds.", "bold green")

    def _say(self, text: str, style: str = "") -> None:
        if not self._quiet:
            say_styled(text, style)


def _cells(stage: Stage) -> tuple[str, ...]:
    bought = "?" if stage.answers_bought is None else str(stage.answers_bought)
    end = f"killed in {stage.killed_in}" if stage.killed_in else stage.end
    return (
        str(stage.number),
        end,
        bought,
        str(stage.answers_recorded),
        str(stage.tool_runs),
        str(stage.effects),
        ", ".join(map(str, stage.versions)) or "none",
    )


def _shown(moment: str) -> str:
    return _MODEL_CALL if moment == "model" else moment
