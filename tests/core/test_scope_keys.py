"""Scopes and their keys."""

import pytest

from agentkit.core.contracts.types import Scope


@pytest.mark.parametrize(
    "scope", [Scope(), Scope("a"), Scope("a", "b"), Scope("", "b"), Scope("a/b%2F", "%25/")]
)
def test_a_scope_is_found_by_its_key(scope: Scope) -> None:
    """The key says both parts, whatever characters they hold."""
    assert scope == Scope.of_key(scope.key)
