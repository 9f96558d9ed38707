"""A pytest plugin for the process that tests a mutant: tells which package it met, and how each
test ended.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

import agentkit

VARIABLE = "MUTANT_WITNESS"
ASSERTION = "assertion"

_ends: dict[str, str] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember the first phase that did not pass, or that all passed."""
    report = yield
    if _ends.get(item.nodeid, "passed") == "passed":
        _ends[item.nodeid] = "passed" if call.excinfo is None else _end(call.when, call.excinfo)
    return report


def pytest_sessionfinish() -> None:
    """Write it down."""
    told = {"package": agentkit.__file__, "ends": _ends}
    Path(os.environ[VARIABLE]).write_text(json.dumps(told), encoding="utf-8")


def _end(when: str, raised: pytest.ExceptionInfo[BaseException]) -> str:
    """`assertion`, or what went wrong instead; a time limit fails a test without one."""
    failed = isinstance(raised.value, AssertionError | pytest.fail.Exception)
    if when == "call" and failed and not str(raised.value).startswith("Timeout"):
        return ASSERTION
    return f"{raised.typename} in {when}: {str(raised.value)[:300]}"
