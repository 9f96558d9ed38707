"""What every test may use, and which tests take part."""

import os
from pathlib import Path

import pytest

pytest_plugins = ("tests.servers",)

_FOLDERS = {
    "reference": "AGENTKIT_REFERENCE_DIR",
    "recordings": "AGENTKIT_RECORDINGS_DIR",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what needs a folder that nobody named: such a test says nothing either way."""
    unset = {mark for mark, variable in _FOLDERS.items() if not os.environ.get(variable)}
    left_out = [item for item in items if unset & {mark.name for mark in item.iter_markers()}]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """The folder with the two reference documents; for tests marked `reference`."""
    return _folder("reference")


@pytest.fixture(scope="session")
def recordings_dir() -> Path:
    """The folder with recorded provider traffic; for tests marked `recordings`."""
    return _folder("recordings")


def _folder(mark: str) -> Path:
    variable = _FOLDERS[mark]
    named = os.environ.get(variable)
    assert named, f"a test that uses this fixture must be marked with pytest.mark.{mark}"
    folder = Path(named)
    assert folder.is_dir(), f"{variable} names {named!r}, which is not a folder"
    return folder
