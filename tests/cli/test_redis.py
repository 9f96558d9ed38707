"""The command line on a Redis store."""

import re
from pathlib import Path
from typing import cast

import pytest
import redis

from agentkit.testing.servers import RedisCluster, RedisServer
from tests.cli.kit import Shell

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "use-redis.md"

pytestmark = pytest.mark.redis


def test_a_run_in_redis_is_made_and_looked_at(shell: Shell, redis_url: str) -> None:
    """By URL, with a prefix of one's own."""
    url = f"{redis_url}?prefix=mine"
    made = shell("run", "agents:talker", "Talk.", "--run-id", "r1", "--store", url)
    shown = shell("show", "r1", "--store", url, "--json")
    elsewhere = shell("show", "r1", "--store", redis_url)

    assert 0 == made.code, made
    assert "done" == shown.json["status"]
    assert 3 == elsewhere.code


@pytest.mark.parametrize(
    ("appendonly", "level", "says"),
    [(False, "bad", "appendonly=no"), (True, "ok", "acknowledged entries survive")],
)
def test_doctor_tells_what_a_redis_keeps(
    shell: Shell, appendonly: bool, level: str, says: str
) -> None:
    """Settings under which entries may be lost are bad."""
    with RedisServer(appendonly=appendonly, appendfsync="always") as server:
        done = shell("doctor", "--json", "--store", server.url)

    found = {finding["subject"]: finding for finding in done.json}
    assert level == found["durability 1"]["level"]
    assert says in found["durability 1"]["text"]
    assert (level == "bad") == (done.code == 1)


def test_an_option_that_is_none_is_named(shell: Shell) -> None:
    """A slip of the pen in a URL is no other prefix, and an error of usage in one line."""
    refused = shell("runs", "--store", "redis://localhost?prefx=mine")

    assert 2 == refused.code
    assert "the option prefx is not known" in refused.err
    assert 1 == len(refused.err.strip().splitlines())


def test_an_open_run_without_its_entries_is_told_to_have_expired(
    shell: Shell, redis_url: str
) -> None:
    """By whatever command meets it; nothing of it is begun anew."""
    shell.environment["AGENTKIT_STORE_URL"] = redis_url
    shell.suspended("r1")
    redis.Redis.from_url(redis_url).delete("agent:log:{r1}")

    asked = [
        shell("show", "r1", "--json"),
        shell("tool", "settle", "r1", "1.0", "--skip", "--json"),
        shell("resume", "r1", "--json"),
        shell("run", "agents:sender", "Send a.", "--run-id", "r1", "--json"),
    ]
    listed = shell("runs")

    assert [(5, "RunExpired")] * 4 == [(one.code, one.json["error"]) for one in asked]
    assert "it has expired: its entries are gone" in listed.out
    assert shell("runs", "--json").json[0]["expired"]


def test_doctor_makes_lists_anew(shell: Shell, redis_url: str) -> None:
    """On Redis; other stores have none that could lack runs."""
    shell("run", "agents:talker", "Talk.", "--run-id", "r1", "--store", redis_url)
    shell("runs", "--store", redis_url)
    redis.Redis.from_url(redis_url).zrem("agent:runs:", "r1")
    short = shell("runs", "--json", "--store", redis_url)
    done = shell("doctor", "--repair", "--json", "--store", redis_url)
    other = shell("doctor", "--repair", "--json")

    found = [one["text"] for one in [*done.json, *other.json] if one["subject"] == "repair"]
    assert [
        "lists made anew; runs in them: 1",
        "this store has no lists that could lack runs",
    ] == found
    assert [] == short.json
    assert ["r1"] == [run["run"] for run in shell("runs", "--json", "--store", redis_url).json]


def _grant(server: RedisServer) -> None:
    """The user that the page on Redis names, and nothing else."""
    (line,) = re.findall(r"^ACL SETUSER .+$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    server.ask(*line.split())


def _denied(server: RedisServer) -> set[str]:
    """What was refused, but for what redis-py tells of itself and does not need."""
    log = cast("list[dict[str, str]]", server.ask("ACL", "LOG"))
    fields = [dict(zip(one[::2], one[1::2], strict=True)) for one in cast("list[list[str]]", log)]
    return {str(one["object"]) for one in fields} - {"client|setinfo"}


def _all_commands(shell: Shell) -> dict[str, int]:
    """What the commands come to that read, write, list, scan and remove."""
    question = shell.suspended("r1")
    asked = {
        "run": ["agents:talker", "Talk.", "--run-id", "r2"],
        "runs": [],
        "status": [],
        "show": ["r2"],
        "approvals": [],
        "resume": ["r1", "--answer", f"{question}=skip"],
        "fork": ["r2", "--from", "latest"],
        "submit": ["agents:talker", "Talk.", "--run-id", "r3"],
        "pause": ["r3"],
        "unpause": ["r3"],
        "cancel": ["r3"],
        "export": ["--output", "out.jsonl"],
        "accept-failover": ["r2"],
        "gc": ["--older-than", "0s"],
        "doctor": ["--repair"],
    }
    return {name: shell(name, *arguments).code for name, arguments in asked.items()}


def test_the_user_of_the_page_may_do_what_every_command_needs(shell: Shell) -> None:
    """On one server, in another database than the first."""
    with RedisServer(save="") as server:
        _grant(server)
        shell.environment["AGENTKIT_STORE_URL"] = (
            f"redis://worker:password@127.0.0.1:{server.port}/1"
        )
        codes = _all_commands(shell)
        denied = _denied(server)

    assert set() == denied
    assert 6 not in codes.values(), codes


@pytest.mark.slow
def test_the_user_of_the_page_may_do_what_a_cluster_needs(shell: Shell) -> None:
    """On all nodes."""
    with RedisCluster() as cluster:
        for node in cluster.nodes:
            _grant(node)
        shell.environment["AGENTKIT_STORE_URL"] = cluster.url.replace("://", "://worker:password@")
        codes = _all_commands(shell)
        denied = set().union(*(_denied(node) for node in cluster.nodes))

    assert set() == denied
    assert 6 not in codes.values(), codes


def test_a_stopped_run_is_accepted(shell: Shell) -> None:
    """One by name, or all that have not ended."""
    with RedisServer(save="3600 1") as server:
        shell.environment["AGENTKIT_STORE_URL"] = server.url
        question = shell.suspended("r1")
        shell("run", "agents:talker", "Talk.", "--run-id", "done")
        server.restart()

        stopped = shell("resume", "r1", "--answer", f"{question}=skip")
        unknown = shell("accept-failover", "r2")
        neither = shell("accept-failover")
        accepted = shell("accept-failover", "--all", "--json")
        resumed = shell("resume", "r1", "--answer", f"{question}=skip", "--json")

    assert (6, 3, 2) == (stopped.code, unknown.code, neither.code), stopped
    assert "agentkit accept-failover" in stopped.err
    assert [{"run": "r1", "accepted": True}] == accepted.json
    assert 0 == resumed.code, resumed


def test_other_stores_have_no_failovers(shell: Shell) -> None:
    """That is said, instead of doing nothing."""
    shell("run", "agents:talker", "Talk.", "--run-id", "r1")

    assert "no Redis store" in shell("accept-failover", "r1").err
