"""The kill loop of the crash harness, with a provider that survives the workers."""

import random
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
from agentkit.testing.provider import Call, StrictProvider
from tests.http.kit import Api, steps, url_of
from tests.http.workers import HttpOrder


@dataclass
class HttpCampaign(Campaign):
    """Runs whose workers talk to a provider of their own.

    Args:
        api: which SDK.
        stream: whether answers come as streams.
    """

    api: Api = "anthropic"
    stream: bool = True
    requests: int = 0
    bought: int = 0
    lost: int = 0
    refusals: list[Call] = field(default_factory=list)

    def ordeal(self) -> "HttpOrdeal":
        """A run that has not begun, and its provider."""
        self.runs += 1
        path = self.base / f"run{self.runs}"
        path.mkdir()
        return HttpOrdeal(self, Folder(path))

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
        self.provider = StrictProvider(steps)

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
        url = url_of(self.campaign.api, self.provider)
        return HttpOrder(**told, api=self.campaign.api, url=url, stream=self.campaign.stream)

    def judge(self) -> list[Violation]:
        """The checker's verdict, and that of the provider's ledger."""
        campaign, found = self.campaign, super().judge()
        assert self.provider.settle()
        campaign.requests += len(self.provider.calls)
        campaign.refusals += self.provider.refusals
        bought = sum(call.bought for call in self.provider.calls)
        rows = decode_rows(self.read(), after=0, before=b"", run_id="r1")
        recorded = sum(isinstance(entry.body, ModelAnswered) for entry, _ in rows)
        unknown = self.state().usage.unknown
        campaign.bought += bought
        campaign.lost += bought - recorded
        if not recorded <= bought <= recorded + unknown:
            what = f"{bought} answers were sold, {recorded} are recorded, {unknown} unknown"
            found.append(Violation("I9", str(self.folder.path), what))
            campaign.violations.append(found[-1])
        return found
