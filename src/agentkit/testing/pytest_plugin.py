"""The pytest plugin: a fixture that crash-tests an agent.

Pytest loads it wherever agentkit is installed, so it imports nothing before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentkit.testing.crashtest import CrashReport

__all__ = ["crash_everywhere"]


@pytest.fixture
def crash_everywhere() -> Callable[..., CrashReport]:
    """Kill an agent's workers with SIGKILL at every border of a run; returns the report.

    `report = crash_everywhere(agent, task="…", model=[Turn(…), …])`, then `report.assert_safe()`.
    Takes what `agentkit.testing.crashtest.crash_test` takes. The agent, or a function that makes
    it, stands at the top of a module (the test's own will do): the processes that are killed import
    it from there, they are no copies of the process that runs pytest.
    """
    from agentkit.testing.crashtest import crash_test

    return partial(crash_test, replay="crash_everywhere(…, at='{at}')")
