"""Redis: what is sent to a server is what Redis 6.2 knows, and goes by the server's own clock."""

import re
import time
from importlib.resources import files
from pathlib import Path

import pytest
import redis

from agentkit.core.contracts.errors import RunInUse
from agentkit.state.checkpoints import adapters
from agentkit.state.checkpoints.adapters import RedisCheckpointStore
from tests.state.stores.helpers import TTL_SECONDS

FOLDER = Path(adapters.__file__).parent
SCRIPTS = sorted(FOLDER.glob("_lua/*.lua"))
MODULES = sorted(FOLDER.glob("_redis*.py"))

# Commands that we use, and since which release of Redis there are they, with the options that we
# use: https://redis.io/docs/latest/commands/
SINCE = {
    "ASKING": "3.0",
    "CLUSTER SLOTS": "3.0",
    "CONFIG GET": "2.0",
    "DEL": "1.0",
    "EVAL": "2.6",
    "EVALSHA": "2.6",
    "EXISTS": "1.0",
    "GET": "1.0",
    "HDEL": "2.0",
    "HGET": "2.0",
    "HMGET": "2.0",
    "HSET": "4.0",
    "INFO": "1.0",
    "LLEN": "1.0",
    "LRANGE": "1.0",
    "PERSIST": "2.2",
    "PEXPIRE": "2.6",
    "PING": "1.0",
    "RPUSH": "2.4",
    "SCAN": "6.0",
    "SCRIPT LOAD": "2.6",
    "SET": "2.6",
    "TIME": "2.6",
    "TYPE": "1.0",
    "ZADD": "6.2",
    "ZCARD": "1.2",
    "ZCOUNT": "2.0",
    "ZMSCORE": "6.2",
    "ZRANGE": "6.2",
    "ZREM": "2.4",
    "ZREMRANGEBYSCORE": "1.2",
    "ZSCORE": "1.2",
}
"""`ZADD` has LT since 6.2, `ZRANGE` BYSCORE, BYLEX and LIMIT; `SCAN` has TYPE since 6.0, `SET` PX
since 2.6.
"""

NEWER = r"\b(EXAT|PXAT|KEEPTTL|EXPIRETIME|SINTERCARD|LMPOP|ZMPOP|FCALL|setresp)\b|^#!|acl_check_cmd"
"""Options and features of scripts that came later, or that Valkey and managed services lack."""


def _commands() -> set[str]:
    """Names of all commands in scripts and modules."""
    found = set()
    for file in SCRIPTS:
        found |= set(re.findall(r"redis\.p?call\('(\w+)'", file.read_text("utf-8")))
    for file in MODULES:
        text = file.read_text("utf-8")
        found |= {name.partition(" ")[0] for name in re.findall(r'Call\(\s*"([A-Z ]+)', text)}
        for first, second in re.findall(r'\("([A-Z]{3,})"(?:, "([A-Z]+)")?', text):
            if first in {"ASKING", "EVAL", "EVALSHA", "INFO", "SCRIPT", "CONFIG", "CLUSTER"}:
                found.add(f"{first} {second}".strip())
    return found


def test_every_command_is_known_to_the_oldest_server() -> None:
    """None is newer than Redis 6.2, which the documentation promises to do."""
    found = _commands()

    assert {"EVAL", "EVALSHA", "RPUSH", "ZMSCORE", "CONFIG GET"} <= found
    assert set() == found - set(SINCE)
    assert max(SINCE.values(), key=_number) == "6.2"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_no_script_uses_what_came_later(script: Path) -> None:
    """Neither options, nor flags in a first line, nor functions of the scripting language; and an
    expiry is set without conditions, which came with 7.0.
    """
    text = script.read_text("utf-8")

    assert [] == re.findall(NEWER, text, re.MULTILINE)
    assert [] == re.findall(r"'P?EXPIRE'[^)]*'(?:NX|XX|GT|LT)'", text)


def test_the_scripts_are_where_they_are_looked_for() -> None:
    """Those that are looked at here are those that are sent."""
    folder = files("agentkit.state.checkpoints.adapters").joinpath("_lua")

    assert [file.name for file in SCRIPTS] == sorted(file.name for file in folder.iterdir())


@pytest.mark.redis
async def test_leases_and_epochs_go_by_the_servers_clock_alone(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is hours ahead takes no run that is held, and no later epoch."""
    store = RedisCheckpointStore(redis_url)
    await store.acquire("r", "worker", TTL_SECONDS)
    ahead = time.time() + 7_200.0
    monkeypatch.setattr(time, "time", lambda: ahead)

    with pytest.raises(RunInUse) as refused:
        await store.acquire("r", "other", TTL_SECONDS)
    new = await store.acquire("new", "other", TTL_SECONDS)

    client = redis.Redis.from_url(redis_url, decode_responses=True)
    assert 0 < refused.value.expires_in_seconds <= TTL_SECONDS
    assert new.epoch < ahead * 1000
    assert int(str(client.hget("agent:checkpoint:{new}", "expires_ms"))) < ahead * 1000
    await store.aclose()


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
