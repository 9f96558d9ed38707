"""What a proxy can do to a connection."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["CutRequest", "Fault", "HoldAnswer", "LoseAnswer", "LoseRequest"]


class _OnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Strikes when a request has these bytes in it.

    Attributes:
        request: what is looked for in what a client sends; empty means the next request.
        skip: let so many matches pass first. Matches are told apart by the pieces in which the
            bytes arrive: two in one piece are one.
    """

    request: bytes = b""
    skip: int = 0


class LoseAnswer(_OnRequest, frozen=True, kw_only=True):
    """Pass the request on, let the server act on it, and cut the connection before its answer.

    Attributes:
        answer: cut when this has come back; nothing of the answer is passed on from the request
            on. Empty means the first byte, which is right where one request is under way at a time.
    """

    answer: bytes = b""


class HoldAnswer(_OnRequest, frozen=True, kw_only=True):
    """Pass the request on, and never let its answer through; the connection stays open."""


class LoseRequest(_OnRequest, frozen=True, kw_only=True):
    """Cut the connection when the request has come; the server does not see the end of it."""


class CutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Cut a connection when the server has been given so many bytes of what its client sends.

    Attributes:
        after_bytes: counted on each connection from the moment at which the fault was set.
    """

    after_bytes: int


Fault: TypeAlias = LoseAnswer | HoldAnswer | LoseRequest | CutRequest
