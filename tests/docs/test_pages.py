"""Every snippet and every command of README, tutorials and how-tos does what the page says."""

import importlib.util
from pathlib import Path

import pytest

from agentkit.testing.provider import Answer, CallSpec, StrictProvider
from tests.docs.snippets import ROOT, Reader

ON_SERVERS = {"use-postgres", "use-redis"}
"""Pages that need a server, and have tests of their own."""

PAGES = sorted(
    page
    for page in [*ROOT.glob("docs/tutorial/*.md"), *ROOT.glob("docs/howto/*.md")]
    if page.stem not in ON_SERVERS
)

LONG = {
    "answer-from-the-command-line",
    "back-up-and-move",
    "crash-test-your-agent",
    "own-store",
    "retention",
    "run-a-worker",
}
"""Pages that are read among the slow tests."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in LONG else []) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_a_reader_gets_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    """Code is saved and run, commands are typed, and what they print is on the page."""
    done = Reader(tmp_path, {}).follow(page)

    assert done > 0


@pytest.mark.skipif(importlib.util.find_spec("anthropic") is None, reason="needs the SDK")
def test_a_reader_of_the_readme_gets_what_it_shows(tmp_path: Path) -> None:
    """The provider that the example names is played over HTTP, so that no key is needed."""
    script = [
        Answer(tool_calls=[CallSpec("search", {"query": "octopuses"})]),
        Answer(text="They think with their arms."),
    ]
    with StrictProvider(script) as provider:
        environment = {
            "ANTHROPIC_API_KEY": provider.api_key,
            "ANTHROPIC_BASE_URL": provider.url,
            "NO_PROXY": "127.0.0.1",
        }
        done = Reader(tmp_path, environment).follow(ROOT / "README.md")

        assert done > 0
        assert 4 == len(provider.calls)  # one run from Python, one from the shell
        assert [] == provider.refusals
