"""`python -m agentkit.testing.crash`: kill the scenario's workers at random for a while."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from agentkit.core.runtime import SystemClock
from agentkit.testing.crash.processes import serve

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run a campaign, or be the fork server of one. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agentkit.testing.crash", description=__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    server = modes.add_parser("serve", help="fork workers for orders on stdin (for ForkServer)")
    server.add_argument("function", help="package.module:function")
    campaign = modes.add_parser("campaign", help="kill workers at random instants")
    campaign.add_argument("--seed", type=int, default=1, help="the first run's seed; then +1 each")
    campaign.add_argument("--runs", type=int, default=1_000_000, help="how many runs at most")
    campaign.add_argument("--seconds", type=float, default=60.0, help="how long at most")
    campaign.add_argument("--steps", type=int, default=3, choices=(1, 2, 3))
    campaign.add_argument("--exhaustive", action="store_true", help="each border, then each pair")
    given = parser.parse_args(arguments)
    if given.mode == "serve":
        serve(given.function)
        return 0
    return _campaign(given)


def _campaign(given: argparse.Namespace) -> int:
    from agentkit.testing.crash.loop import SCENARIO, Campaign
    from agentkit.testing.crash.processes import ForkServer
    from agentkit.testing.invariants import report

    clock = SystemClock()
    until = clock.elapsed() + given.seconds
    with tempfile.TemporaryDirectory() as folder, ForkServer(SCENARIO) as server:
        campaign = Campaign(server, Path(folder), steps=given.steps)
        if given.exhaustive:
            for number in range(1, campaign.every_border() + 1):
                campaign.every_border([number])
        else:
            for seed in range(given.seed, given.seed + given.runs):
                if clock.elapsed() >= until or campaign.violations:
                    break
                campaign.at_random(seed)
        sys.stdout.write(f"{campaign.summary()}\n{report(campaign.violations)}\n")
        return 1 if campaign.violations else 0


if __name__ == "__main__":
    sys.exit(main())
