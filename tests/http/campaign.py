"""The kill loop of the crash harness, with a provider that survives the workers."""

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import msgspec

from agentkit.core.contracts.entries import ModelAnswered
from agentkit.state.journal.codec import decode_rows
from agentkit.testing.crash import Campaign, Death, Ordeal
from agentkit.testing.crash.scenario import Folder
from agentkit.testing.invariants import Violation
from agentkit.testing.provider import Call, Fault, StrictProvider
from agentkit.testing.provider.script import ScriptSource
from tests.http.kit import KEY, Api, steps, url_of
from tests.http.workers import HttpOrder

_BOUND_SECONDS = 20.0


@dataclass
class HttpCampaign(Campaign):
    """Runs whose workers talk to a provider of their own.

    Args:
        api: which SDK.
        stream: whether answers come as streams.
        script: what the model says; by default what the scenario's steps want.
        output: how a run has to end where the script is another one.
        prompt, odd, thinking: see `HttpOrder`; for the workers to come.
    """

    api: Api = "anthropic"
    stream: bool = True
    script: ScriptSource = steps
    output: str = ""
    prompt: str = "Work."
    odd: bool = False
    thinking: bool = True
    secrets: tuple[str, ...] = (KEY,)
    requests: int = 0
    bought: int = 0
    lost: int = 0
    refusals: list[Call] = field(default_factory=list)

    @property
    def expected(self) -> str:
        """What an undisturbed run answers."""
        return self.output or super().expected

    def ordeal(self, begun: Ordeal | None = None) -> "HttpOrdeal":
        """A run that has not begun, or a copy of one, and a provider of its own."""
        copied = super().ordeal(begun)
        ordeal = HttpOrdeal(self, copied.folder)
        ordeal.reads += copied.reads
        if isinstance(begun, HttpOrdeal):
            ordeal.earlier += begun.calls
        return ordeal

    def one_of_each_border(self, seed: int) -> set[str]:
        """Kill one run at each kind of border that an undisturbed run passes: at the first, or at
        a later one, as the dice say. Returns the kinds.
        """
        dice = random.Random(seed)
        self.run([])
        for name, times in Counter(self.hits).items():
            self.run([f"{name}#{dice.randint(1, times)}"])
        return set(self.killed_at)

    def summary(self) -> str:
        """Kills, borders and what went over the wire."""
        head = f"{self.api}, {'streaming' if self.stream else 'whole answers'}: "
        wire = f"{self.requests} requests, {len(self.refusals)} refused, {self.bought} answers "
        wire += f"bought, {self.lost} of them lost\n"
        return head + wire + super().summary() + "\n"


class HttpOrdeal(Ordeal):
    """One run, its provider, and the verdict over both."""

    def __init__(self, campaign: HttpCampaign, folder: Folder) -> None:
        super().__init__(campaign, folder)
        self.campaign = campaign
        self.provider = StrictProvider(campaign.script)
        self.earlier: list[Call] = []

    def __enter__(self) -> Self:
        self.provider.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.provider.close()

    def order(self, death: Death = None, *, how: int = 9) -> HttpOrder:
        """As of the scenario, and where the provider is."""
        told = msgspec.structs.asdict(super().order(death, how=how))
        campaign = self.campaign
        return HttpOrder(
            **told,
            api=campaign.api,
            url=url_of(campaign.api, self.provider),
            stream=campaign.stream,
            prompt=campaign.prompt,
            odd=campaign.odd,
            thinking=campaign.thinking,
        )

    @property
    def calls(self) -> list[Call]:
        """All requests of the run, those before it was copied included."""
        return [*self.earlier, *self.provider.calls]

    @property
    def recorded(self) -> int:
        """How many answers are in the journal."""
        rows = decode_rows(self.read(), after=0, before=b"", run_id="r1")
        return sum(isinstance(entry.body, ModelAnswered) for entry, _ in rows)

    def kill_while_held(self, fault: Fault, *, shown: str = "") -> Call:
        """A worker that gets SIGKILL while the provider holds an answer back, and, where text is
        named, has told its watcher so much of it. Returns what was held.
        """
        self.provider.fail_next(fault)
        before = len(self.folder.promises.read())
        pid = self.campaign.server.start(msgspec.to_builtins(self.order()))
        assert self.provider.wait_until(lambda calls: any(_is_held(call) for call in calls))
        until = time.monotonic() + _BOUND_SECONDS
        while shown not in self._shown(before):
            assert time.monotonic() < until, "the text did not come"
            os.sched_yield()
        os.kill(pid, signal.SIGKILL)
        assert "killed" == self.campaign.server.wait().how
        self.campaign.kills += 1
        self.read()
        assert self.provider.settle()
        return next(call for call in self.provider.calls if call.held and not call.answered)

    def _shown(self, after: int) -> str:
        lines = self.folder.promises.read()[after:]
        return "".join(str(line["text"]) for line in lines if line["event"] == "message_delta")

    def judge(self) -> list[Violation]:
        """The checker's verdict, and that of the provider's ledger."""
        campaign, found = self.campaign, super().judge()
        assert self.provider.settle()
        calls = self.calls
        campaign.requests += len(calls)
        campaign.refusals += [call for call in calls if call.refusal is not None]
        bought = sum(call.bought for call in calls)
        recorded = self.recorded
        unknown = self.state().usage.unknown
        campaign.bought += bought
        campaign.lost += bought - recorded
        if not recorded <= bought <= recorded + unknown:
            what = f"{bought} answers were sold, {recorded} are recorded, {unknown} unknown"
            found.append(Violation("I9", str(self.folder.path), what))
            campaign.violations.append(found[-1])
        return found


def _is_held(call: Call) -> bool:
    return call.held and not call.ended
