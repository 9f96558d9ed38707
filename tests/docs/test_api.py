"""The page of public names lists what is there, and all of what the top level offers."""

import re
from inspect import getdoc
from pkgutil import resolve_name

import agentkit
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"

PACKAGES = (
    "agentkit.agents",
    "agentkit.agents.cognition",
    "agentkit.dispatch",
    "agentkit.core.runtime",
    "agentkit.core.testing",
    "agentkit.models.providers.frontiers",
    "agentkit.state.checkpoints",
    "agentkit.state.checkpoints.adapters",
    "agentkit.state.upkeep",
    "agentkit.testing.conformance",
    "agentkit.testing.crashtest",
    "agentkit.tools",
)
"""Those that users import from."""

EXCUSED = {
    "ArgumentsInvalid": "becomes an error result; no user sees it raised",
    "Capability": "the names of CAPABILITIES, for type checkers",
    "CheckpointerPort": "what the runtime needs of a Checkpointer",
    "ClockKind": "the values of Harness.clock, for type checkers",
    "Cognition": "the base of the two cognitions; others are not supported yet",
    "FunctionTool": "what @tool makes; users hold it and call it",
    "MODEL_SECONDS": "stands among the limits",
    "Result": "the values of Verdict.result, for type checkers",
    "SystemChance": "a default of Services",
    "SystemClock": "a default of Services",
    "Tool": "what the runtime needs of a tool",
}
"""Names that packages share with one another and users need not know, each with its reason."""


def test_the_page_lists_every_name_of_the_top_level() -> None:
    """The first table is `agentkit.__all__`, the version aside."""
    top = PAGE.read_text("utf-8").partition("## From its packages")[0]

    assert set(agentkit.__all__) - {"__version__"} == set(_names(top))


def test_every_name_resolves_and_documents_itself() -> None:
    """What the page names can be imported as it stands there, and `help` says something of it."""
    top, _, rest = PAGE.read_text("utf-8").partition("## From its packages")
    dotted = [*(f"agentkit.{name}" for name in _names(top)), *_names(rest)]

    assert dotted
    assert [] == [name for name in dotted if not getdoc(resolve_name(name))]


def test_the_page_lists_what_the_packages_offer() -> None:
    """Every name in a package's `__all__` has a row, or a reason not to have one."""
    listed = {name.rpartition(".")[2] for name in _names(PAGE.read_text("utf-8"))}
    offered = {name for package in PACKAGES for name in resolve_name(package).__all__}

    assert set() == offered - listed - EXCUSED.keys()
    assert set() == EXCUSED.keys() - offered


def _names(text: str) -> list[str]:
    return re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)
