"""Real servers on free loopback ports, to be used and killed by tests. Needs Linux."""

from agentkit.testing.servers.binaries import BinaryMissing
from agentkit.testing.servers.postgres import PostgresServer
from agentkit.testing.servers.processes import ServerFailed
from agentkit.testing.servers.redis import RedisServer

__all__ = ["BinaryMissing", "PostgresServer", "RedisServer", "ServerFailed"]
