"""A provider that says yes to everything valid."""

from collections.abc import Iterator

import pytest

from agentkit.testing.provider import Answer, StrictProvider


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    """A provider whose every answer is "Yes.", whatever the length of the history."""
    with StrictProvider(lambda request: Answer(text="Yes.")) as running:
        yield running
