"""The kit sees what it is for: a bad store's sin is told by the check that is named for it."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from agentkit.core.contracts.ports import Checkpoint, CheckpointPort, ClockPort, JournalPort
from agentkit.core.runtime import SystemClock
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, StoreWrapper
from agentkit.testing.conformance import (
    CAPABILITIES,
    CHECKS,
    Broken,
    Check,
    Harness,
    NotOffered,
    check_store,
    run_check,
)
from agentkit.testing.conformance.__main__ import main
from tests.state.stores.harnesses import MemoryHarness, WrappedHarness
from tests.testing.conformance.bad_stores import BadStore, NotAtomic, bad_stores

BY_NAME = {check.name: check for check in CHECKS}


class FiveMethods:
    """A store of somebody who read only the small port."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[int, Checkpoint]] = {}

    async def save(self, checkpoint: Checkpoint) -> None:
        """Keep it."""
        versions = self._slots.setdefault(checkpoint.slot, {})
        if checkpoint.version in versions:
            raise ValueError(f"version {checkpoint.version} exists")
        versions[checkpoint.version] = checkpoint

    async def latest(self, slot: str) -> Checkpoint | None:
        """The newest."""
        versions = self._slots.get(slot)
        return versions[max(versions)] if versions else None

    async def at_version(self, slot: str, version: int) -> Checkpoint | None:
        """That one."""
        return self._slots.get(slot, {}).get(version)

    async def list_versions(self, slot: str) -> list[int]:
        """All."""
        return sorted(self._slots.get(slot, {}))

    async def delete(self, slot: str) -> None:
        """None."""
        self._slots.pop(slot, None)


class FiveHarness(Harness):
    """Makes them."""

    name = "five methods"

    async def new_place(self) -> str:
        """Any."""
        return "here"

    def open(self, place: str, clock: ClockPort) -> CheckpointPort:
        """A new one."""
        return FiveMethods()


class RealHarness(MemoryHarness):
    """A store whose time has to be waited for."""

    clock = "real"

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """By the machine's own clock."""
        return InMemoryCheckpointStore()


class JumpingClock(SystemClock):
    """Goes on by itself, and can be made to jump."""

    ahead = 0.0

    def now(self) -> float:
        """With what was jumped over."""
        return super().now() + self.ahead

    def elapsed(self) -> float:
        """With what was jumped over."""
        return super().elapsed() + self.ahead


class MovedHarness(MemoryHarness):
    """A store whose own clock goes on, and which can be told that time has passed."""

    clock = "moved"

    def __init__(self) -> None:
        self._clock = JumpingClock()

    def open(self, place: str, clock: ClockPort) -> JournalPort:
        """By the clock that jumps."""
        return InMemoryCheckpointStore(clock=self._clock)

    async def let_pass(self, place: str, clock: FakeClock, seconds: float) -> None:
        """Jump."""
        self._clock.ahead += seconds


def harness_of(wrap: Callable[[JournalPort], JournalPort]) -> Harness:
    """The memory store, spoilt."""
    return WrappedHarness(MemoryHarness(), wrap)


def sinner() -> Harness:
    """For the command line."""
    return harness_of(NotAtomic)


@pytest.mark.parametrize("sin", bad_stores(), ids=lambda sin: sin.__name__)
async def test_a_sin_is_seen_by_the_check_that_is_named_for_it(sin: type[BadStore]) -> None:
    """With a reason that says what was expected and what came, and where to read."""
    report = await check_store(harness_of(sin), checks=[BY_NAME[sin.seen_by]])

    assert [sin.seen_by] == [one.check for one in report.broken]
    reason = report.broken[0].reason
    assert "expected" in reason or "raised" in reason
    assert "seen in _" in reason
    assert not report.ok


async def test_without_a_sin_the_same_checks_are_kept() -> None:
    """So it is the sin that they see."""
    checks = [BY_NAME[sin.seen_by] for sin in bad_stores()]

    report = await check_store(harness_of(BadStore), checks=checks)

    assert report.ok, report.text()


@pytest.mark.parametrize("kind", [MovedHarness, pytest.param(RealHarness, marks=pytest.mark.slow)])
async def test_a_store_whose_clock_cannot_be_held_is_checked_all_the_same(
    kind: type[Harness],
) -> None:
    """Only what happens at an exact instant is left out."""
    report = await check_store(kind())

    assert report.ok, report.text()
    left_out = {one.check for one in report.verdicts if "cannot be held" in one.reason}
    assert "leases.a-lease-lapses-at-the-exact-instant" in left_out
    assert "leases.a-lease-that-lapsed-can-be-taken" not in left_out


async def test_a_report_is_readable() -> None:
    """It names promise, reason and docstring of what is broken, and counts the rest."""
    checks = [BY_NAME[NotAtomic.seen_by], BY_NAME["slots.slots-are-apart"], *_of("transactions")]

    text = (await check_store(sinner(), checks=checks)).text(verbose=True)

    for line in (
        "BROKEN  append.a-refused-append-leaves-nothing",
        "Whatever an append is refused for, neither its first rows nor its summary are there.",
        "! the rows: expected",
        "read: the docstring of JournalPort.append",
        "kept    slots.slots-are-apart",
        "not offered: transactions: it has no transactions for tools",
        f"memory in a NotAtomic: 1 kept, 1 broken, {len(_of('transactions'))} not offered",
    ):
        assert line in text


async def test_a_store_of_five_methods_is_checked_for_them() -> None:
    """The rest is not offered, which is no failure."""
    report = await check_store(FiveHarness())

    assert report.ok, report.text()
    kept = {one.check for one in report.verdicts if one.result == "kept"}
    assert {check.name for check in CHECKS if check.needs == ("slots",)} == kept
    with pytest.raises(NotOffered, match="only the five methods"):
        await run_check(BY_NAME[NotAtomic.seen_by], FiveHarness())


async def test_a_store_that_raises_what_it_should_not_is_told_by_its_error() -> None:
    """The error's own name is in the report."""

    class Crashing(StoreWrapper):
        """Fails at once."""

        async def save(self, checkpoint: Checkpoint) -> None:
            """Fail."""
            raise ZeroDivisionError("by accident")

    check = BY_NAME["slots.what-is-saved-comes-back-whole"]
    report = await check_store(harness_of(Crashing), checks=[check])

    assert "raised ZeroDivisionError: by accident" in report.text()
    with pytest.raises(ZeroDivisionError):
        await run_check(check, harness_of(Crashing))


async def test_nothing_checked_is_not_ok() -> None:
    """A report without a single promise kept proves nothing."""
    assert not (await check_store(FiveHarness(), checks=_of("values"))).ok


async def test_a_store_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check ends with a reason, and the next one runs."""
    monkeypatch.setattr("agentkit.testing.conformance.kit.DEADLINE_SECONDS", 0.05)

    class Hanging(StoreWrapper):
        """Never answers."""

        async def latest(self, slot: str) -> Checkpoint | None:
            """Wait for nobody."""
            await _never()
            return None

    with pytest.raises(Broken, match="did not end within"):
        await run_check(BY_NAME["slots.slots-are-apart"], harness_of(Hanging))


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def test_the_command_line_tells_by_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """0 for kept, 1 for broken, 2 for no harness; with `--json` for programs."""
    name = "tests.testing.conformance.test_kit"

    assert 0 == main([f"{name}:FiveHarness"])
    assert "five methods: " in capsys.readouterr().out
    assert 1 == main([f"{name}:sinner", "--only", "a-refused-append", "--json"])
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (False, "memory in a NotAtomic") == (told["ok"], told["store"])
    assert ["broken"] == [one["result"] for one in told["verdicts"]]
    assert 0 == main(["--list"])
    assert len(CHECKS) == len(capsys.readouterr().out.splitlines())
    for wrong in ([], ["no_such_module:x"], [f"{name}:BY_NAME"]):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert 2 == ended.value.code


def test_the_kit_needs_no_test_framework() -> None:
    """Neither pytest nor a driver is loaded with it."""
    program = (
        "import sys, agentkit.testing.conformance\n"
        "print({'pytest', 'apsw', 'psycopg', 'redis'} & set(sys.modules))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "set()\n" == shown.stdout


def test_every_capability_is_needed_by_a_check() -> None:
    """And each check needs only capabilities that have a meaning."""
    needed = {need for check in CHECKS for need in check.needs}

    assert set(CAPABILITIES) == needed


def _of(subject: str) -> list[Check]:
    return [check for check in CHECKS if check.name.startswith(f"{subject}.")]
