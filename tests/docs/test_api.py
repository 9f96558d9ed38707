"""The page of public names lists what is there, and all of what the top level offers."""

import re
from inspect import getdoc
from pkgutil import resolve_name

import agentkit
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "reference" / "api.md"


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


def _names(text: str) -> list[str]:
    return re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)
