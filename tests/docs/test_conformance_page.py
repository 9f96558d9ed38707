"""The page of the conformance kit lists what the kit checks."""

import re

from agentkit.testing.conformance import CAPABILITIES, CHECKS
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "reference" / "conformance.md"


def test_the_page_lists_every_capability() -> None:
    """With its meaning, as the kit itself says it."""
    part = PAGE.read_text("utf-8").partition("## Capabilities")[2].partition("## Checks")[0]
    rows = [f"| `{name}` | {meaning} |" for name, meaning in CAPABILITIES.items()]

    assert rows == re.findall(r"^\| `.+$", part, re.MULTILINE), "\n".join(rows)


def test_the_page_lists_every_check() -> None:
    """With its promise and the docstring that makes it."""
    part = PAGE.read_text("utf-8").partition("## Checks")[2]
    rows = [f"| `{check.name}` | {check.promise} | `{check.law}` |" for check in CHECKS]

    assert rows == re.findall(r"^\| `.+$", part, re.MULTILINE), "\n".join(rows)
