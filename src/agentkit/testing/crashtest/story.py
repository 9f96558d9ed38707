"""What became of a run: read from its journal once it has ended."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import Row
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.invariants import Evidence, check

__all__ = ["CallStory", "Place", "Story", "tell_story"]


class Place(msgspec.Struct, frozen=True, order=True):
    """The identity of a call."""

    lane: str
    turn: int
    index: int


class CallStory(msgspec.Struct):
    """What happened to one call.

    Args:
        place: which call.
        tool: its name.
        keys: its idempotency keys; one at most, in a sound run.
        outcome: how it ended; empty where it has not.
        content: what the model was told.
        in_flight: how often a worker died while it was under way.
        questions: ids of the questions about it.
        answers: what was answered to them.
    """

    place: Place
    tool: str
    keys: tuple[str, ...] = ()
    outcome: str = ""
    content: str = ""
    in_flight: int = 0
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()

    @property
    def by_decision(self) -> bool:
        """Whether its outcome is not what the tool did, but what a person or its policy said."""
        return self.outcome == "in_doubt" or self.answers[-1:] in {("skip",), ("failed",)}

    @property
    def in_doubt(self) -> int:
        """How often a person was asked about it, or the model told that nobody knows."""
        return len(self.questions) + (self.outcome == "in_doubt")


class Story(msgspec.Struct, frozen=True):
    """What a run left.

    Args:
        run: its id.
        status: `finished`, `failed`, `cancelled`, `parked`, or `running` where it has no end.
        output: of a finished run.
        message: why it did not finish.
        texts: the model's texts, turn by turn.
        calls: in the order in which they were asked for.
        violations: invariants of the journal that do not hold.
        threads: how many threads the user's modules had started before the first fork.
    """

    run: str
    status: str
    output: str
    message: str
    texts: tuple[str, ...]
    calls: tuple[CallStory, ...]
    violations: tuple[str, ...] = ()
    threads: int = 1

    def call(self, place: Place) -> CallStory | None:
        """The call at a place."""
        return next((call for call in self.calls if call.place == place), None)


def tell_story(rows: Sequence[Row], *, run: str, threads: int = 1) -> Story:
    """Read the journal of `run`."""
    reader = _Reader()
    for entry, _ in decode_rows(rows, after=0, before=b"", run_id=run):
        reader.read(entry)
    broken = check(Evidence(run=run, rows=tuple(rows)))
    return Story(
        run=run,
        status=reader.status,
        output=reader.output,
        message=reader.message,
        texts=tuple(reader.texts),
        calls=tuple(reader.calls.values()),
        violations=tuple(f"{one.invariant}: {one.what}" for one in broken),
        threads=threads,
    )


_OPEN = frozenset({"unknown", "retrying", "not_started"})


class _Reader:
    """Takes one entry after the other."""

    def __init__(self) -> None:
        self.status, self.output, self.message = "running", "", ""
        self.texts: list[str] = []
        self.calls: dict[Place, CallStory] = {}
        self._under_way: set[Place] = set()

    def read(self, entry: e.Entry) -> None:
        """Take the next entry."""
        body, lane = entry.body, entry.lane
        if isinstance(body, e.ModelAnswered):
            self.texts.append(body.text)
            for index, record in enumerate(body.calls):
                place = Place(lane, body.turn, index)
                self.calls[place] = CallStory(place, record.name)
        elif isinstance(body, e.LeaseTaken):
            for place in self._under_way:
                self.calls[place].in_flight += 1
            self._under_way.clear()
        elif isinstance(body, e.ToolStarted | e.QuestionAsked | e.ToolFinished):
            self._of_call(self.calls[Place(lane, body.turn, body.index)], body, entry.seq)
        elif isinstance(body, e.Decided):
            for call in self.calls.values():
                if body.question in call.questions:
                    call.answers += (body.answer,)
        elif isinstance(body, e.OutcomeReported):
            call = self.calls[Place(lane, body.turn, body.index)]
            if not call.outcome and body.outcome not in _OPEN:
                call.outcome, call.content = body.outcome, body.content
        else:
            self._of_run(body)

    def _of_call(
        self, call: CallStory, body: e.ToolStarted | e.QuestionAsked | e.ToolFinished, seq: int
    ) -> None:
        if isinstance(body, e.ToolStarted):
            self._under_way.add(call.place)
            if body.key and body.key not in call.keys:
                call.keys += (body.key,)
        elif isinstance(body, e.QuestionAsked):
            call.questions += (f"q{seq}",)
        else:
            self._under_way.discard(call.place)
            if body.outcome not in _OPEN:
                call.outcome, call.content = body.outcome, body.content

    def _of_run(self, body: e.Body) -> None:
        if isinstance(body, e.Finished):
            self.status, self.output = "finished", body.output
        elif isinstance(body, e.Failed):
            self.status, self.message = "failed", body.message
        elif isinstance(body, e.Cancelled):
            self.status, self.message = "cancelled", body.reason
        elif isinstance(body, e.Parked):
            self.status, self.message = "parked", f"{body.reason}: {body.message}"
        elif isinstance(body, e.Unparked):
            self.status, self.message = "running", ""
