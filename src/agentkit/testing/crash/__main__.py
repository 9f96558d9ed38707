"""`python -m agentkit.testing.crash`: kill the scenario's workers thousands of times.

`campaign --kills 10000 --seed 1 --jobs 2` kills workers at each known border, and then as the seeds
1, 2, 3 … say. It fails where an invariant is violated, a worker ends by an error, or nobody died at
some known border. A seed that failed is run again by `campaign --seed=N --runs 1`.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

from agentkit.testing.crash.processes import serve

__all__ = ["main"]

_COMMAND = "python -m agentkit.testing.crash"

_OF_NOTES = {"note:before", "note:after"}
"""Reached only after a question."""


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign, or be the fork server of one. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agentkit.testing.crash", description=__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    server = modes.add_parser("serve", help="fork workers for orders on stdin (for ForkServer)")
    server.add_argument("function", help="package.module:function")
    server.add_argument("setup", nargs="*", help="JSON for the module's warm_up")
    campaign = modes.add_parser("campaign", help="kill workers, carry their runs on, judge")
    campaign.add_argument("--seed", type=int, default=1, help="of the first run; then +1 each")
    campaign.add_argument("--kills", type=int, default=2_000, help="stop after so many")
    campaign.add_argument("--runs", type=int, help="so many seeds and nothing else")
    campaign.add_argument(
        "--store",
        default="sqlite",
        help="sqlite, a file for each run; postgres or redis, one server of our own for all",
    )
    campaign.add_argument("--jobs", type=int, default=1, help="how many runs at a time")
    modes.add_parser("exhaustive", help="each border, and after each border each other one")
    given = parser.parse_args(arguments)
    if given.mode == "serve":
        serve(given.function, *given.setup)
        return 0
    return _campaign(given) if given.mode == "campaign" else _exhaustive()


def _campaign(given: argparse.Namespace) -> int:
    from agentkit.testing.crash.seeds import by_name, run_seeds
    from agentkit.testing.crash.stores import served
    from agentkit.testing.invariants import report

    replayed = given.runs is not None
    seeds = (
        range(given.seed, given.seed + given.runs)
        if replayed
        else itertools.chain(by_name(), itertools.count(given.seed))
    )
    base = Path(tempfile.mkdtemp(prefix="agentkit-kills-"))
    with served(given.store) as url:
        figures = run_seeds(
            seeds,
            base,
            jobs=given.jobs,
            kills=None if replayed else given.kills,
            store=url,
            progress=_Progress(),
        )
    sys.stdout.write(f"{figures.summary()}\n{report(figures.violations)}\n")
    for one in figures.failed:
        again = f"{_COMMAND} campaign --seed={one.seed} --runs 1 --store {given.store}"
        sys.stdout.write(f"seed {one.seed} failed (deaths: {one.deaths}); again: {again}\n")
    if figures.failed:
        sys.stdout.write(f"what the failed runs left is in {base}\n")
        return 1
    shutil.rmtree(base)
    missed = [] if replayed else figures.unkilled
    sys.stdout.write("".join(f"nobody died at the border {name}\n" for name in missed))
    return 1 if missed else 0


def _exhaustive() -> int:
    """Each border, and after each border each other one."""
    from agentkit.testing.crash.loop import SCENARIO, Campaign
    from agentkit.testing.crash.processes import ForkServer
    from agentkit.testing.invariants import report

    with tempfile.TemporaryDirectory() as folder, ForkServer(SCENARIO) as server:
        campaign = Campaign(server, Path(folder))
        for number in range(1, campaign.every_border() + 1):
            campaign.every_border([number])
        sys.stdout.write(f"{campaign.summary()}\n{report(campaign.violations)}\n")
        return 1 if campaign.violations or campaign.unhit - _OF_NOTES else 0


class _Progress:
    """A line for each thousand kills."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, kills: int) -> None:
        if kills // 1_000 > self._told:
            self._told = kills // 1_000
            sys.stderr.write(f"{kills} kills\n")


if __name__ == "__main__":
    sys.exit(main())
