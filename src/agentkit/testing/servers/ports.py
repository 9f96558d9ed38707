"""Free loopback ports that stay ours while this process lives."""

from __future__ import annotations

import os
import socket

from agentkit.testing.servers.processes import ServerFailed

__all__ = ["HOST", "take_port"]

HOST = "127.0.0.1"
"""Where every server listens."""

# Below the ports that the kernel gives to outgoing connections: one of those could sit on the port
# of a server that is being restarted. With 10,000 added they are still below.
_FIRST, _LAST = 12_000, 22_000

_taken: list[socket.socket] = []


def take_port(*, also: int = 0) -> int:
    """A port that nobody listens on and that no other process takes through this function.

    A claim is a Unix socket with a name in the kernel's abstract namespace: it has the same scope
    as the ports, and goes when the process goes.

    Args:
        also: claim the port so many numbers higher too.

    Raises:
        ServerFailed: none is free.
    """
    span = _LAST - _FIRST
    start = os.getpid() * 97
    for step in range(span):
        port = _FIRST + (start + step) % span
        if all(_claim(number) for number in {port, port + also}):
            return port
    raise ServerFailed("no free port on loopback")


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0agentkit-port-{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except OSError:
        claim.close()
        return False
    _taken.append(claim)
    return True
