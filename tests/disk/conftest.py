"""Which of these tests can run here."""

import pytest

from agentkit.testing.disk.space import can_mount


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what needs a file system of its own where this user may not mount one."""
    mounting = [item for item in items if item.name.startswith("test_on_a_full_file_system")]
    if mounting and not can_mount():
        config.hook.pytest_deselected(items=mounting)
        items[:] = [item for item in items if item not in mounting]
