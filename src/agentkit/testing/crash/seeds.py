"""Campaigns of thousands of kills: what a seed does to a run, and many seeds at a time."""

from __future__ import annotations

import random  # noqa: TID251 - seeded: a campaign can be repeated
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.runtime import SystemClock
from agentkit.testing.crash.loop import SCENARIO, Campaign, Death
from agentkit.testing.crash.plan import BORDERS
from agentkit.testing.crash.processes import ForkServer
from agentkit.testing.invariants import Violation

__all__ = ["Fate", "Figures", "by_name", "fate", "run_seeds"]

_BORDERS_A_STEP = 17
"""About so many borders a worker passes in each of the scenario's steps."""

_INSTANT_SECONDS = 0.1
"""Within this time a worker has usually done all it can."""

_PLAIN_EFFECTS = {1: (2,), 2: (2, 3), 3: (2, 3)}
"""Which `effect:after` are those of the plain tool, by number of steps."""


class Fate(NamedTuple):
    """What is done to one run.

    Args:
        seed: what it was made from.
        steps: how many turns of tools the run has.
        deaths: of its workers, one after the other; see `Campaign.run`.
    """

    seed: int
    steps: int
    deaths: tuple[Death, ...]


def fate(seed: int) -> Fate:
    """What happens to the run of this seed: the same each time, but for what an instant hits.

    Of five seeds one kills at a border; one at a border, then while the next worker recovers, up
    to four times; one at instants; one at both; and one leaves a plain effect in doubt, so that a
    human is asked, and kills whoever brings the answer.

    The seeds 0, -1, -2 … are the known borders by name, each with one death there.
    """
    if seed <= 0:
        return _of_border(seed)
    dice = random.Random(seed)  # noqa: S311 - no secret
    steps = dice.choice((1, 2, 3, 3))

    def borders(times: int) -> Iterator[int]:
        left = _BORDERS_A_STEP * steps
        for _ in range(times):
            number = dice.randint(1, left)
            yield number
            left = max(6, left - number)  # the next one has so much less to do

    def instants(times: int) -> Iterator[float]:
        return (dice.uniform(0.0, _INSTANT_SECONDS) for _ in range(times))

    deaths: list[Death] = []
    match seed % 5:
        case 0:
            deaths += borders(1)
        case 1:
            deaths += borders(dice.randint(2, 4))
        case 2:
            deaths += instants(dice.randint(1, 4))
        case 3:
            deaths += [*borders(2), *instants(2)]
            dice.shuffle(deaths)
        case _:
            doubtful = f"effect:after#{dice.choice(_PLAIN_EFFECTS[steps])}"
            deaths += [doubtful, None, dice.randint(1, 8), dice.randint(1, 6 * steps)]
    return Fate(seed, steps, tuple(deaths))


def _of_border(seed: int) -> Fate:
    """The death is of the first worker; for a note, of the one with the human's answer."""
    border = BORDERS[-seed]
    before: tuple[Death, ...] = ("effect:after#2", None) if border.startswith("note:") else ()
    return Fate(seed, 3, (*before, border))


def by_name() -> range:
    """The seeds of the borders, each once."""
    return range(0, -len(BORDERS), -1)


@dataclass(frozen=True)
class Figures:
    """What a campaign came to.

    Args:
        campaigns: those that ran side by side.
        seconds: how long they took.
        failed: the fates whose runs broke something.
    """

    campaigns: Sequence[Campaign]
    seconds: float
    failed: Sequence[Fate]

    @property
    def kills(self) -> int:
        """How many workers got SIGKILL."""
        return sum(campaign.kills for campaign in self.campaigns)

    @property
    def violations(self) -> list[Violation]:
        """All of them."""
        return [one for campaign in self.campaigns for one in campaign.violations]

    @property
    def unkilled(self) -> list[str]:
        """Known borders at which nobody died."""
        killed = {border for campaign in self.campaigns for border in campaign.killed_at}
        return [border for border in BORDERS if border not in killed]

    def summary(self) -> str:
        """The figures in some lines, with each border by name."""
        hits: Counter[str] = Counter()
        killed: Counter[str] = Counter()
        for campaign in self.campaigns:
            hits.update(campaign.hits)
            killed.update(campaign.killed_at)
        runs = sum(campaign.runs for campaign in self.campaigns)
        asked = sum(campaign.questions for campaign in self.campaigns)
        waits = sorted(s for campaign in self.campaigns for s in campaign.takeovers_seconds)
        lines = [
            f"{self.kills} kills, {killed.total()} of them at borders, the others at any instant",
            f"{runs} runs, {asked} questions asked, {len(self.violations)} violations",
            f"{self.seconds:.0f} s, {self.kills / max(self.seconds, 0.001):.1f} kills/s",
        ]
        if waits:
            middle, longest = waits[len(waits) // 2], waits[-1]
            lines.append(
                f"from kill to takeover {middle:.3f} s (median), {longest:.3f} s (longest)"
            )
        lines += [f"{name:15} {hits[name]:8} hit {killed[name]:6} killed" for name in BORDERS]
        return "\n".join(lines)


def run_seeds(
    seeds: Iterable[int],
    base: Path,
    *,
    jobs: int = 1,
    kills: int | None = None,
    store: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Figures:
    """Run them, `jobs` at a time, until there are no more, `kills` are reached, or one fails.

    Args:
        seeds: of the runs, see `fate`.
        base: an empty folder; a run that breaks something stays there, the others go.
        jobs: how many runs at a time, each with workers of its own.
        kills: when to stop.
        store: URL of a store that all runs share; else each has a SQLite file of its own.
        progress: called after each run with the kills so far.
    """
    clock = SystemClock()
    begun = clock.elapsed()
    lock = threading.Lock()
    campaigns: list[Campaign] = []
    failed: list[Fate] = []
    left = iter(seeds)

    def next_fate() -> Fate | None:
        with lock:
            done = sum(campaign.kills for campaign in campaigns)
            progress(done)
            enough = kills is not None and done >= kills
            seed = None if failed or enough else next(left, None)
            return None if seed is None else fate(seed)

    def work(number: int) -> None:
        folder = base / f"job{number}"
        folder.mkdir(parents=True)
        with ForkServer(SCENARIO, setup={"store": store} if store else None) as server:
            campaign = Campaign(server, folder, store=store)
            campaigns.append(campaign)
            while (chosen := next_fate()) is not None:
                if not _sound(campaign, chosen):
                    failed.append(chosen)

    with ThreadPoolExecutor(jobs) as pool:
        for job in [pool.submit(work, number) for number in range(1, jobs + 1)]:
            job.result()
    return Figures(campaigns, clock.elapsed() - begun, failed)


def _sound(campaign: Campaign, chosen: Fate) -> bool:
    """Run it; whether nothing was broken. What a run leaves behind goes if so."""
    campaign.steps = chosen.steps
    known = len(campaign.violations)
    try:
        campaign.run(chosen.deaths)
    except AgentkitError as error:  # a worker failed, is stuck, or does not get on
        campaign.violations.append(Violation("L1", f"seed {chosen.seed}", str(error)))
    if len(campaign.violations) > known:
        return False
    shutil.rmtree(campaign.base / f"run{campaign.runs}")
    return True
