"""The conformance kit: whether a store keeps what the ports promise, check by check.

No test framework is needed: checks are plain coroutines, see `check_store`.
"""

from agentkit.testing.conformance.catalogue import Check
from agentkit.testing.conformance.expect import Broken
from agentkit.testing.conformance.harness import CAPABILITIES, Capability, ClockKind, Harness
from agentkit.testing.conformance.kit import CHECKS, NotOffered, check_store, run_check
from agentkit.testing.conformance.report import Report, Result, Verdict

__all__ = [
    "CAPABILITIES",
    "CHECKS",
    "Broken",
    "Capability",
    "Check",
    "ClockKind",
    "Harness",
    "NotOffered",
    "Report",
    "Result",
    "Verdict",
    "check_store",
    "run_check",
]
