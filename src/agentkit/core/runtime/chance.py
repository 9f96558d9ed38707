"""The machine's dice behind the chance port: the one place that draws numbers."""

from __future__ import annotations

import random  # noqa: TID251 - this is the chance port
import secrets  # noqa: TID251 - this is the chance port

__all__ = ["SystemChance"]


class SystemChance:
    """A `ChancePort` on the system's generators."""

    def token(self) -> str:
        """32 hex digits that nobody can guess and no two calls share."""
        return secrets.token_hex(16)

    def fraction(self) -> float:
        """A number in [0, 1); for spreading, not for secrets."""
        return random.random()  # noqa: S311 - this is the chance port; no secret
