"""Our stores keep every promise of the ports: the kit's checks, one test for each."""

import itertools

import pytest

from agentkit.core.testing import FakeClock
from agentkit.testing.conformance import CHECKS, Check, Harness, check_store, run_check
from agentkit.testing.conformance.harness import lacking
from tests.state.stores.harnesses import KNOWN, WRAPPERS, WrappedHarness

CASES = [
    pytest.param(
        name,
        check,
        id=f"{name}-{check.name}",
        marks=[
            *([getattr(pytest.mark, known.mark)] if known.mark else []),
            *([pytest.mark.slow, pytest.mark.timeout(900)] if check.slow else []),
        ],
    )
    for name, known in KNOWN.items()
    for check in CHECKS
    if not set(check.needs) & set(known.lacks)
]
NAMES = [
    pytest.param(name, marks=[getattr(pytest.mark, known.mark)] if known.mark else [])
    for name, known in KNOWN.items()
]


@pytest.fixture
def harness(name: str, request: pytest.FixtureRequest) -> Harness:
    """How to come to the store of that name."""
    return KNOWN[name].make(request.getfixturevalue)


@pytest.mark.parametrize(("name", "check"), CASES)
async def test_a_promise_is_kept(harness: Harness, check: Check) -> None:
    """What the check's docstring says."""
    await run_check(check, harness)


@pytest.mark.parametrize("name", NAMES)
async def test_what_a_store_does_not_offer_is_known(name: str, harness: Harness) -> None:
    """No check is left out by accident."""
    place = await harness.new_place()
    port = harness.open(place, FakeClock())

    assert set(KNOWN[name].lacks) == set(lacking(harness, port, place))

    await harness.remove(place)


@pytest.mark.parametrize(
    ("name", "wrapper"),
    [
        pytest.param(
            name,
            wrapper,
            marks=[getattr(pytest.mark, known.mark)] if known.mark else [],
        )
        for (name, known), wrapper in itertools.product(KNOWN.items(), WRAPPERS)
    ],
)
async def test_a_wrapper_changes_nothing(harness: Harness, wrapper: str) -> None:
    """Around any store, it keeps all that the store keeps. Processes open the store without it."""
    wrapped = WrappedHarness(harness, WRAPPERS[wrapper])
    checks = [
        check
        for check in CHECKS
        if "processes" not in check.needs and not check.name.startswith("random.")
    ]

    report = await check_store(wrapped, checks=checks)

    assert report.ok, report.text()


def test_checks_have_names_of_their_own() -> None:
    """A name says one thing, and the promise is there to be read."""
    names = [check.name for check in CHECKS]

    assert sorted(set(names)) == sorted(names)
    assert [] == [check.name for check in CHECKS if not check.promise.endswith(".")]
