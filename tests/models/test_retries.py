"""F135: the documented table of retries is what the code does."""

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import InvalidSpec, ModelError
from agentkit.core.contracts.model import FailureKind
from agentkit.core.runtime.retry import RETRIED, RetryPolicy, next_retry
from agentkit.models.providers._failures import may_be_paid, refused
from agentkit.models.providers.anthropic import AnthropicMessages
from agentkit.models.providers.openai import OpenAIChat

DOC = (Path(__file__).parents[2] / "docs" / "reference" / "retries.md").read_text("utf-8")
POLICY = RetryPolicy()
KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
YES = {"yes": True, "no": False}


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = DOC.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def _refusal(status: int, body: object = None, **headers: str) -> ModelError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refused("P", status, body, named)  # type: ignore[arg-type] # any JSON


def test_f135_the_table_of_kinds_is_the_code_s() -> None:
    """Every kind stands in the document once, with what the code does about it."""
    documented = {kind: YES[tried] for kind, tried, _ in _rows("Kinds of failure")}

    assert dict(RETRIED) == documented
    assert set(KINDS) == set(documented)


@pytest.mark.parametrize("row", _rows("Status codes"), ids=lambda row: row[0])
def test_f135_the_table_of_status_codes_is_the_code_s(row: list[str]) -> None:
    """Each documented status has the documented kind, retry and chance of having been paid."""
    status, kind, tried, paid = row
    error = _refusal(int(status))
    wait = next_retry(_kind(error), 1, policy=POLICY, jitter=0.5)

    assert (kind, YES[tried], YES[paid]) == (error.kind, wait is not None, error.may_be_paid)


def test_every_status_that_is_named_in_the_code_is_documented() -> None:
    """No status has a meaning of its own that the document does not tell."""
    documented = {int(row[0]) for row in _rows("Status codes")}
    plain = {"invalid_request": range(400, 500), "server": range(500, 600)}
    special = {
        status
        for kind, statuses in plain.items()
        for status in statuses
        if (_refusal(status).kind, may_be_paid(status)) != (kind, False)
    }

    assert special <= documented


def test_the_documented_settings_are_the_defaults() -> None:
    """The table of `RetryPolicy` names every field and its default."""
    documented = {name: float(value) for name, value, _ in _rows("How long is waited")}
    actual = {name: float(getattr(POLICY, name)) for name in RetryPolicy.__struct_fields__}

    assert actual == documented


def test_the_documented_limits_are_the_defaults() -> None:
    """The stall and connect limits of both adapters are those of the table."""
    documented = {what: value for what, value, _ in _rows("Limits of one attempt")}
    for adapter in (AnthropicMessages, OpenAIChat):
        defaults = adapter.__init__.__kwdefaults__ or {}

        assert f"{defaults['stall_seconds']:g} s" == documented["a stream without a byte"]
        assert f"{defaults['connect_seconds']:g} s" == documented["opening a connection"]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, {"error": {"code": "insufficient_quota", "message": "x"}}, "quota"),
        (429, {"type": "insufficient_quota"}, "quota"),
        (
            429,
            {
                "error": {
                    "type": "rate_limit_error",
                    "message": "x",
                    "details": {"error_code": "enforced_spend_limit_reached"},
                }
            },
            "quota",
        ),
        (429, {"error": {"message": "See https://x/account/billing to raise it"}}, "rate_limited"),
        (400, {"error": {"message": "Your credit balance is too low"}}, "quota"),
        (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}, "context_length"),
        (400, {"error": {"code": "context_length_exceeded"}}, "context_length"),
        (413, {"error": {"message": "exceeds the maximum context length"}}, "context_length"),
        (500, {"error": {"type": "overloaded_error"}}, "overloaded"),
        (503, "<html>", "server"),
        (418, None, "invalid_request"),
        (599, ["odd"], "server"),
    ],
)
def test_what_the_body_says_goes_further_than_the_status(
    status: int, body: object, kind: str
) -> None:
    """Spend limits and overflowing transcripts are told by the body."""
    assert kind == _refusal(status, body).kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            30.0,
        ),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:27:00 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            0.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "tomorrow", "date": "today"}, None),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    """Milliseconds, seconds and dates count; nonsense counts for nothing."""
    assert seconds == refused("P", 429, None, headers).retry_after_seconds


@pytest.mark.parametrize(
    ("said", "expected"), [("true", True), ("False", False), ("perhaps", None), ("", None)]
)
def test_x_should_retry_is_carried(said: str, expected: bool | None) -> None:
    """The provider's own word about trying again reaches whoever decides."""
    assert expected is _refusal(500, x_should_retry=said).should_retry


def test_f134_attempts_are_counted_in_all() -> None:
    """Five attempts in all: four waits, growing, then the end."""
    waits = [next_retry("server", n, policy=POLICY, jitter=1.0) for n in range(1, 7)]

    assert [0.5, 1.0, 2.0, 4.0, None, None] == waits


def test_the_provider_s_wait_is_obeyed() -> None:
    """Never earlier than asked, at most a tenth later; longer than the limit stops."""
    least, most = (
        next_retry("rate_limited", 1, retry_after_seconds=2.0, policy=POLICY, jitter=jitter)
        for jitter in (0.0, 1.0)
    )
    limit = POLICY.max_retry_after_seconds
    beyond = next_retry("rate_limited", 1, retry_after_seconds=limit + 1, policy=POLICY, jitter=0.0)

    assert (2.0, None) == (least, beyond)
    assert pytest.approx(2.2) == most


def test_zero_is_no_advice() -> None:
    """`Retry-After: 0` does not make a hot loop: the computed wait holds."""
    assert 0.25 == next_retry("server", 1, retry_after_seconds=0.0, policy=POLICY, jitter=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_provider_s_word_goes_first(kind: FailureKind) -> None:
    """`false` stops every kind; `true` allows every kind but a spend limit."""
    stopped = next_retry(kind, 1, should_retry=False, policy=POLICY, jitter=0.5)
    allowed = next_retry(kind, 1, should_retry=True, policy=POLICY, jitter=0.5)

    assert stopped is None
    assert (kind == "quota") == (allowed is None)


@example("server", 10**9, 10**9 + 1, (5e-324, 1e9), 1.0)
@example("server", 10**9, 10**9 + 1, (0.0, 1e9), 1.0)
@given(
    kind=st.sampled_from(KINDS),
    attempt=st.integers(1, 10**9),
    attempts=st.integers(1, 10**9),
    growth=st.tuples(st.floats(0.0, 1e6), st.floats(1.0, 1e9)),
    jitter=st.floats(0.0, 1.0),
)
def test_a_wait_stays_within_its_bounds(
    kind: FailureKind, attempt: int, attempts: int, growth: tuple[float, float], jitter: float
) -> None:
    """No wait is negative, longer than the limit, or an overflow, however many attempts."""
    policy = RetryPolicy(attempts=attempts, base_seconds=growth[0], factor=growth[1])
    wait = next_retry(kind, attempt, policy=policy, jitter=jitter)

    assert (wait is not None) == (RETRIED[kind] and attempt < attempts)
    assert wait is None or 0.0 <= wait <= policy.max_seconds


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"base_seconds": -1.0},
        {"factor": 0.5},
        {"max_seconds": float("inf")},
        {"max_retry_after_seconds": float("nan")},
    ],
)
def test_a_policy_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    """A policy that makes no sense is an error when it is written down."""
    with pytest.raises(InvalidSpec, match=re.escape(next(iter(wrong)))):
        RetryPolicy(**wrong)  # type: ignore[arg-type] # wrong on purpose


def _kind(error: ModelError) -> FailureKind:
    return next(kind for kind in KINDS if kind == error.kind)
