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
            marks=[
                getattr(pytest.mark, known.mark),
                pytest.mark.slow,
                pytest.mark.timeout(900),
            ]
            if known.mark
            else [],
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


CATALOGUE = {
    "F055": "leases.a-second-worker-is-refused",
    "F056": "fencing.the-epoch-grows-while-the-clock-steps-back",
    "F057": "fencing.the-old-holder-can-do-nothing",
    "F058": "repeats.the-same-append-twice-at-once-is-one-append",
    "F059": "append.an-append-elsewhere-than-at-the-end-is-refused",
    "F060": "leases.the-stores-elapsed-time-decides",
    "F061": "contention.of-twenty-contenders-one-has-the-lease",
    "F081": "append.what-is-appended-is-read-back-byte-for-byte",
    "F082": "ids.an-impossible-id-is-refused-by-every-method",
    "F103": "retention.only-what-the-caller-saw-is-entombed",
    "F106": "processes.processes-append-at-once",
    "F108": "scopes.scope-keys-do-not-collide",
    "F109": "retention.entries-of-an-ended-run-expire-and-those-of-others-do-not",
    "F111": "fencing.order-is-by-number-whatever-the-clock-says",
    "F112": "handles.two-handles-do-not-overwrite-each-other",
    "F114": "lists.filters-narrow-the-list",
    "F115": "scopes.another-scope-sees-nothing",
    "F117": "ids.any-other-id-is-just-a-name",
    "F118": "handles.the-location-names-the-data-and-no-secret",
}
"""Failures of other systems, and the check that would meet each of them on all of our stores."""


def test_failures_of_others_have_their_checks() -> None:
    """None of these checks has gone."""
    assert set() == set(CATALOGUE.values()) - {check.name for check in CHECKS}


def test_checks_have_names_of_their_own() -> None:
    """A name says one thing, and the promise is there to be read."""
    names = [check.name for check in CHECKS]

    assert sorted(set(names)) == sorted(names)
    assert [] == [check.name for check in CHECKS if not check.promise.endswith(".")]
