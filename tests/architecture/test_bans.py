"""What must not stand in the source, the tests, or any file of the project."""

import ast
import re
from pathlib import Path

from tests.architecture.source import (
    PACKAGE,
    ROOT,
    calls,
    hold,
    imports,
    modules,
    tracked,
    tree,
    where,
)

RUNS_DATA = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}
RUNS_TEXT = {"__import__", "builtins.eval", "builtins.exec", "compile", "eval", "exec"}
WALL_CLOCK = re.compile(r"(datetime|date)\.(now|utcnow|today)$")

# Places that must wait for real time, each with its reason.
SLEEPERS: dict[str, str] = {}

# Somebody's machine or desk, not the project. The brackets keep this file out of its own net.
PRIVATE = re.compile(
    r"/wor[k]/|/hom[e]/|/User[s]/|/tmp/ven[v]|pyp[i]\.org|pythonhoste[d]|\b[Ii]ssue #?[0-9]"
)
BESIDE = re.compile(r"\.\./share[d]")
READS_BESIDE = {".ci/run": "finds the optional folders that lie beside a checkout"}


def test_stored_bytes_never_run() -> None:
    """The package decodes data with data formats: no pickle, no eval, no exec."""
    broken = {}
    for path in modules(PACKAGE):
        found = {name for name in imports(path) if name.partition(".")[0] in RUNS_DATA}
        found |= {name for name, _ in calls(path) if name in RUNS_TEXT}
        if found:
            broken[where(path)] = ", ".join(sorted(found))

    hold(broken, excused={}, rule="stored or received bytes are never run")


def test_nobody_reads_the_wall_clock_on_the_side() -> None:
    """Dates come from the clock port, in the package and in its tests."""
    broken = {
        f"{where(path)}:{call.lineno}": name
        for path in [*modules(PACKAGE), *modules(ROOT / "tests")]
        for name, call in calls(path)
        if WALL_CLOCK.search(name)
    }

    hold(broken, excused={}, rule="time comes through the clock port")


def test_no_test_sleeps() -> None:
    """A test moves the fake clock or waits for a described condition; it never just waits."""
    broken = {
        where(path): f"line {call.lineno}: {name}"
        for path in modules(ROOT / "tests")
        for name, call in calls(path)
        if name == "time.sleep" or (name == "asyncio.sleep" and not _yields_only(call))
    }

    hold(broken, excused=SLEEPERS, rule="no test sleeps")


def test_time_sleep_is_not_imported_by_its_bare_name() -> None:
    """The two rules above see dotted names; this keeps their view complete."""
    hidden = {"asyncio.sleep", "time.sleep"}
    broken = {
        where(path): ", ".join(found)
        for path in modules(ROOT / "tests")
        if (found := sorted(hidden & _from_imports(path)))
    }

    hold(broken, excused={}, rule="import the module, not its sleep")


def test_files_speak_of_the_project_alone() -> None:
    """No file names a path of somebody's machine, or where the work on it was planned."""
    broken = {}
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found = {*PRIVATE.findall(text), *BESIDE.findall(text)}
        if found:
            broken[where(path)] = ", ".join(sorted(found))

    hold(broken, excused=READS_BESIDE, rule="files speak of the project alone")


def _yields_only(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and not call.args[0].value


def _from_imports(path: Path) -> set[str]:
    return {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
