"""Plants a bug into a copy of the package and runs the tests that should see it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

import agentkit
from tests.mutants.witness import VARIABLE

ROOT = Path(__file__).parents[2]
PACKAGE = Path(agentkit.__file__).parent
LIST = Path(__file__).with_name("mutants.toml")
TEST_SECONDS = 60
"""A test that meets a bug and hangs is ended by its own time limit."""


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement in a file of the package."""

    file: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bug that could have been written.

    Args:
        name: what is wrong with the code.
        hurts: what would become of a user's run.
        test: the node id that must fail.
        edits: what plants it.
    """

    name: str
    hurts: str
    test: str
    edits: tuple[Edit, ...]


class _List(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...]


class Verdict(msgspec.Struct, frozen=True):
    """What a process saw that ran tests.

    Args:
        package: the file of the package that it imported.
        ends: `passed`, `assertion` or what else came, by node id.
        code: of its exit.
        output: what it printed.
    """

    package: str
    ends: dict[str, str]
    code: int
    output: str


def mutants() -> tuple[Mutant, ...]:
    """The list."""
    return msgspec.toml.decode(LIST.read_bytes(), type=_List).mutant


def plant(folder: Path, name: str, edits: Sequence[Edit]) -> Path:
    """A copy of the package that is under test, installed or not, in `folder`, with these edits.

    Bytecode comes along, so that only the files that change are compiled again.
    """
    package = folder / "agentkit"
    shutil.copytree(PACKAGE, package)
    for file, text in edited(name, edits).items():
        path = package / file
        path.write_text(text, encoding="utf-8")
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
            stale.unlink()
    return package


def edited(name: str, edits: Sequence[Edit]) -> dict[str, str]:
    """The files of the package with these edits; each replaces exactly one place."""
    texts: dict[str, str] = {}
    for edit in edits:
        path = PACKAGE / edit.file
        assert path.is_file(), f"mutant {name!r}: there is no {edit.file} any more; update {LIST}"
        text = texts.get(edit.file) or path.read_text(encoding="utf-8")
        found = text.count(edit.old)
        assert found == 1, (
            f"mutant {name!r}: its old text stands {found} times in {edit.file}, not once. The "
            f"code has changed: update {LIST}\n{edit.old}"
        )
        texts[edit.file] = text.replace(edit.old, edit.new)
    return texts


def run(package: Path, tests: Sequence[str], *, seconds: float) -> Verdict:
    """Run `tests` against `package` in a process of its own, for at most so many seconds."""
    told = package.parent / "witness.json"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(package.parent), VARIABLE: str(told)}
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "tests.mutants.witness"]
    limits = ["-o", f"timeout={TEST_SECONDS}", "--basetemp", str(package.parent / "temp")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *limits, *tests],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{tests} did not end in {seconds:g} seconds:\n{output}") from None
    assert told.is_file(), f"pytest ended with {process.returncode} and ran nothing:\n{output}"
    seen = json.loads(told.read_bytes())
    return Verdict(seen["package"], seen["ends"], process.returncode, output)
