"""Each bug that is planted into a copy of the package is seen by the test that is named for it."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.planting import ROOT, Edit, Mutant, edited, mutants, plant, run
from tests.mutants.witness import ASSERTION

PAGE = ROOT / "docs" / "explanation" / "proof.md"
MUTANTS = mutants()


def servers_of(mutant: Mutant) -> tuple[str, ...]:
    """The servers that its test needs, by its name; a mark of the same name asks for one."""
    return tuple(kind for kind in ("postgres", "pgbouncer", "redis") if kind in mutant.test)


def asking_for(servers: tuple[str, ...]) -> list[pytest.MarkDecorator]:
    """The marks."""
    return [getattr(pytest.mark, kind) for kind in servers]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A new folder with a short name: some of the tests open sockets below theirs."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "mutant", [pytest.param(one, id=one.name, marks=asking_for(servers_of(one))) for one in MUTANTS]
)
def test_a_planted_bug_is_seen(mutant: Mutant, folder: Path) -> None:
    """The test that is named for it fails, by an assertion, on the package with the bug."""
    package = plant(folder, mutant.name, mutant.edits)

    verdict = run(package, [mutant.test], seconds=120)

    assert str(package / "__init__.py") == verdict.package
    assert {mutant.test: ASSERTION} == verdict.ends, (
        f"{mutant.test} does not see {mutant.name!r} ({mutant.hurts}):\n{verdict.output}"
    )
    assert 1 == verdict.code


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "servers",
    [
        pytest.param(servers, id=" ".join(servers) or "no server", marks=asking_for(servers))
        for servers in sorted({servers_of(mutant) for mutant in MUTANTS})
    ],
)
def test_without_a_bug_the_same_tests_pass(servers: tuple[str, ...], folder: Path) -> None:
    """What fails on a mutant fails because of the mutant."""
    tests = sorted({mutant.test for mutant in MUTANTS if servers_of(mutant) == servers})
    package = plant(folder, "none", [])

    verdict = run(package, tests, seconds=540)

    assert str(package / "__init__.py") == verdict.package
    assert dict.fromkeys(tests, "passed") == verdict.ends, verdict.output
    assert 0 == verdict.code


OLD = "    return not head.held or head.epoch == supersede"
SEEN_BY = (
    "tests/state/stores/test_conformance.py::test_a_promise_is_kept"
    "[memory-leases.a-live-run-is-not-deleted]"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "end"),
    [
        pytest.param("    return true", "NameError in call", id="another error"),
        pytest.param(OLD, "passed", id="no bug"),
    ],
)
def test_only_an_assertion_counts(new: str, end: str, folder: Path) -> None:
    """A test that meets another error, or none, does not see the bug."""
    package = plant(folder, "broken", [Edit("state/checkpoints/adapters/_rules.py", OLD, new)])

    verdict = run(package, [SEEN_BY], seconds=120)

    assert [SEEN_BY] == list(verdict.ends)
    assert verdict.ends[SEEN_BY].startswith(end)


@pytest.mark.slow
def test_a_package_that_cannot_be_imported_shows_nothing(folder: Path) -> None:
    """The runner says that no test was run."""
    edit = Edit("state/checkpoints/adapters/_rules.py", OLD, "    return (")
    package = plant(folder, "broken", [edit])

    with pytest.raises(AssertionError, match="ran nothing"):
        run(package, [SEEN_BY], seconds=120)


def test_a_text_that_has_changed_names_the_mutant_to_update() -> None:
    """It must occur exactly once."""
    for old in ("no such text", "head"):
        edit = Edit("state/checkpoints/adapters/_rules.py", old, "")
        with pytest.raises(AssertionError, match=r"mutant 'stale': its old text stands \d+ times"):
            edited("stale", [edit])


def test_every_mutant_can_still_be_planted() -> None:
    """The texts that the list replaces stand in the package as it is, once each."""
    assert all(edited(mutant.name, mutant.edits) for mutant in MUTANTS)


def test_the_page_lists_every_mutant() -> None:
    """The table of the page is the list: names, harm and tests."""
    rows = re.findall(r"^\| (.+) \| (.+) \| `(test_.+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    listed = [(one.name, one.hurts, one.test.partition("::")[2]) for one in MUTANTS]

    assert 25 <= len(listed)
    assert listed == rows, "\n".join(
        f"| {name} | {hurts} | `{test}` |" for name, hurts, test in listed
    )


def test_names_and_bugs_are_unique() -> None:
    """No mutant stands in the list twice."""
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS})
    assert len(MUTANTS) == len({mutant.edits for mutant in MUTANTS})
