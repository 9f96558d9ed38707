"""Real servers on free loopback ports, to be used and killed by tests. Needs Linux."""

from agentkit.testing.servers.binaries import BinaryMissing
from agentkit.testing.servers.faults import CutRequest, Fault, HoldAnswer, LoseAnswer, LoseRequest
from agentkit.testing.servers.pgbouncer import PgBouncer
from agentkit.testing.servers.postgres import PostgresServer, StopMode
from agentkit.testing.servers.processes import ServerFailed
from agentkit.testing.servers.proxy import Proxy
from agentkit.testing.servers.redis import AppendFsync, RedisServer
from agentkit.testing.servers.redis_cluster import RedisCluster
from agentkit.testing.servers.redis_sentinel import RedisSentinel

__all__ = [
    "AppendFsync",
    "BinaryMissing",
    "CutRequest",
    "Fault",
    "HoldAnswer",
    "LoseAnswer",
    "LoseRequest",
    "PgBouncer",
    "PostgresServer",
    "Proxy",
    "RedisCluster",
    "RedisSentinel",
    "RedisServer",
    "ServerFailed",
    "StopMode",
]
