"""One command to a Redis, over a connection of its own, without a driver."""

from __future__ import annotations

import socket
from typing import BinaryIO, TypeAlias

from agentkit.testing.servers.ports import HOST
from agentkit.testing.servers.processes import ServerFailed

__all__ = ["Reply", "ask"]

Reply: TypeAlias = "str | int | list[Reply] | None"
"""What a server answers."""


def ask(port: int, *words: str, seconds: float = 30.0) -> Reply:
    """Send a command and return the answer.

    Raises:
        ServerFailed: the server refused it, or is not there.
    """
    encoded = [word.encode() for word in words]
    request = b"*%d\r\n" % len(encoded)
    request += b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
    try:
        with (
            socket.create_connection((HOST, port), seconds) as connection,
            connection.makefile("rb") as answer,
        ):
            connection.sendall(request)
            return _read(answer)
    except OSError as exc:
        raise ServerFailed(f"Redis on port {port}, {words[0]}: {exc}") from exc


def _read(answer: BinaryIO) -> Reply:
    line = answer.readline()
    if not line.endswith(b"\r\n"):
        raise ServerFailed("Redis closed the connection")
    kind, text = line[:1], line[1:-2].decode()
    match kind:
        case b"+":
            return text
        case b"-":
            raise ServerFailed(f"Redis: {text}")
        case b":":
            return int(text)
        case b"$":
            return None if text == "-1" else answer.read(int(text) + 2)[:-2].decode()
        case b"*":
            return None if text == "-1" else [_read(answer) for _ in range(int(text))]
        case _:
            raise ServerFailed(f"Redis said {line!r}")
