"""The example of a full store keeps what the port promises."""

import pytest

from agentkit.testing.conformance import CHECKS, check_store
from examples.notebook_store import NotebookHarness


async def test_the_example_keeps_the_promises_of_leases_and_repetitions() -> None:
    """Who may act, and what is sent again: where a store is most easily wrong."""
    chosen = [check for check in CHECKS if check.name.startswith(("fencing.", "repeats."))]

    report = await check_store(NotebookHarness(), checks=chosen)

    assert report.ok, report.text()


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_the_example_keeps_every_promise() -> None:
    """All checks, with the large numbers too."""
    report = await check_store(NotebookHarness(), thorough=True)

    assert report.ok, report.text()
