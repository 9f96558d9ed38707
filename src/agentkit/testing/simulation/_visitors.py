"""Who says something to the run without driving it, at any moment: people who decide, contradict
each other and come late; senders of events and messages; and whoever stops the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from agentkit.agents import add_message, cancel, pause, record_decisions
from agentkit.core.contracts.errors import AlreadyDecided, InvalidDecision, NoteRefused
from agentkit.core.contracts.types import JSON, Decision, Question
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.journal import load
from agentkit.testing.simulation._outside import HERE, RUN, Word
from agentkit.testing.simulation._waiting_tools import CHOICES
from agentkit.testing.simulation._workers import EXPECTED, Inhabitant

__all__ = ["Decider", "Messenger", "Stopper"]

_ANSWERS = ("approve", "reject", "edit", "answer", "run_again", "skip", "failed", "maybe")


def _anything_goes(question: Question, decision: Decision) -> None:
    """Somebody who does not know what the tool takes: a worker will find out."""
    del question, decision


class Decider(Inhabitant):
    """Decides what it sees, or has seen some time ago, or what nobody has asked; in any way."""

    async def live(self) -> None:
        """The process's main."""
        HERE.set(self.here)
        for number in itertools.count(1):
            await self.pause(0.3, 6.0)
            if self.here.weather.calm:
                return
            with contextlib.suppress(*EXPECTED):
                await self._decide(
                    await load(self.store, RUN), f"{self.here.process.name}.{number}"
                )

    async def _decide(self, state: RunState, actor: str) -> None:
        likely, dice = self.here.process.world.likely, self._dice
        asked = [one.id for one in state.questions]
        if likely(0.07):
            asked = sorted({*asked, *state.decided, "q1", "q999"})
        if not asked:
            return
        if likely(0.3):
            await self.pause(0.0, 25.0)  # and does not look again
        name = dice.choice(asked)
        kinds = [one.kind for one in state.questions if one.id == name]
        kind = kinds[0] if kinds else ""
        names = [actor, f"{actor}'s colleague"] if likely(0.5) else [actor]  # at the same moment
        await asyncio.gather(*(self._say(name, self._drawn(kind, one)) for one in names))

    async def _say(self, name: str, decision: Decision) -> None:
        told, text = await self._told(name, decision)
        self.here.process.must_live()
        self.here.process.say(f"says {decision.answer} to {name}, and is told: {told} {text}")
        word = Word(decision.actor, name, decision.answer, decision.value, told, text)
        self.here.outside.words.append(word)

    def _drawn(self, kind: str, actor: str) -> Decision:
        dice, likely = self._dice, self.here.process.world.likely
        answer = dice.choice({"approval": _ANSWERS[:3], "input": _ANSWERS[3:4]}.get(kind, _ANSWERS))
        if likely(0.1):
            answer = dice.choice(_ANSWERS)
        value: JSON = None
        if answer == "edit":
            item = f"e{next(self.here.outside.numbers)}c0"  # that no other call has
            value = {"item": dice.choice((item, item, 5))}
        elif answer == "answer":
            value = dice.choice(CHOICES)
        elif answer == "failed":
            value = "it did not work"
        return Decision(answer, value, actor)

    async def _told(self, name: str, decision: Decision) -> tuple[str, str]:
        try:
            done = await record_decisions(
                self.store,
                RUN,
                {name: decision},
                clock=self.clock,
                chance=self.chance,
                check=self._dice.choice((None, _anything_goes)),
            )
        except AlreadyDecided as error:
            return "too late", str(error)
        except (InvalidDecision, NoteRefused) as error:
            return "refused", str(error)
        return "repeated" if done.repeated else "recorded", ""


class Messenger(Inhabitant):
    """Tells of events, and adds messages, often more than once."""

    async def live(self) -> None:
        """The process's main."""
        HERE.set(self.here)
        while not self.here.weather.calm:
            await self.pause(1.0, 16.0)
            number = next(self.here.outside.numbers)
            tell = self.event if self.here.process.world.likely(0.5) else self._message
            for _ in range(self._dice.choice((1, 1, 2))):
                with contextlib.suppress(*EXPECTED):
                    await tell(number)

    async def _message(self, number: int) -> None:
        name = f"m{number}"
        self.here.process.say(f"adds message {name}")
        await add_message(self.store, RUN, f"message {name}", message_id=name, clock=self.clock)
        self.acknowledged("message_added", name)


class Stopper(Inhabitant):
    """Pauses the run, or cancels it for good."""

    async def live(self) -> None:
        """The process's main."""
        HERE.set(self.here)
        likely = self.here.process.world.likely
        while not self.here.weather.calm:
            await self.pause(0.5, 20.0)
            with contextlib.suppress(*EXPECTED):
                if likely(0.15):
                    await self._cancel()
                else:
                    self.here.process.say("pauses the run")
                    await pause(self.store, RUN, actor="stopper", clock=self.clock)

    async def _cancel(self) -> None:
        self.here.process.say("cancels the run")
        wait = self._dice.choice((0.0, 0.0, 10.0))
        if self.here.process.world.likely(0.5):
            self.here.weather.soon_dead(self.here.process, self._dice.uniform(0.03, 0.2))
        await cancel(self.store, RUN, actor="stopper", wait_seconds=wait, clock=self.clock)
        self.acknowledged("cancel_asked", "")
