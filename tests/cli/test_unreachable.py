"""Every command on a store that cannot be used: one line, the right exit code, and no password."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner, Result

from agentkit.cli.app import cli
from agentkit.state.checkpoints.adapters import _postgres_errors, _redis_errors
from agentkit.testing.servers import PostgresServer, RedisServer
from tests.cli.kit import AGENTS
from tests.docs.cli_page import commands

SECRET = "hunter2"
AT = "127.0.0.1:1"  # where nobody listens
QUICK = "patience_seconds=0"

DEAD = {
    "postgresql": f"postgresql://u:{SECRET}@{AT}/db",
    "password as option": f"postgres://u@{AT}/db?password={SECRET}&schema=mine",
    "several hosts": f"postgresql://u:{SECRET}@{AT},{AT}/db?target_session_attrs=any",
    "socket": f"postgresql://u:{SECRET}@%2Fnot%2Fthere/db",
    "socket as option": f"postgresql:///db?host=/not/there&user=u&password={SECRET}",
    "redis": f"redis://:{SECRET}@{AT}/0?{QUICK}",
    "redis user": f"redis://u:{SECRET}@{AT}/0?{QUICK}",
    "rediss": f"rediss://u:{SECRET}@{AT}/0?{QUICK}",
    "sentinel": f"redis+sentinel://:{SECRET}@{AT}/m?sentinel_password={SECRET}&{QUICK}",
    "cluster": f"redis+cluster://u:{SECRET}@{AT}?{QUICK}",
    "redis socket": f"redis+unix:///not/there.sock?password={SECRET}&{QUICK}",
}

ARGUMENTS = {
    "answer": ["r1", "q1", "yes"],
    "approve": ["r1", "q1"],
    "cancel": ["r1"],
    "crashtest": ["agents:talker", "--record", "r1"],
    "edit": ["r1", "q1", "{}"],
    "export": ["--output", "out.jsonl"],
    "accept-failover": ["r1"],
    "fork": ["r1", "--from", "latest"],
    "gc": ["--older-than", "1d"],
    "import": ["runs.jsonl"],
    "pause": ["r1"],
    "reject": ["r1", "q1"],
    "resume": ["r1", "--agent", "agents:talker"],
    "run": ["agents:talker", "Talk."],
    "send": ["r1", "arrived"],
    "show": ["r1"],
    "submit": ["talker", "Talk."],
    "tool settle": ["r1", "1.0", "--done", "null"],
    "unpark": ["r1"],
    "unpause": ["r1"],
}
ON_ONE_STORE = sorted(
    name for name, it in commands(cli) if any(one.name == "store" for one in it.params)
)
GOES_ON = {"worker"}  # one that waits for its store
LOOKS = {"doctor"}  # what it finds is its answer
NOTHING_TO_DO = {("redis", "migrate")}  # it has no schema

Agentkit = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Agents, a store that is there, and what was exported from it."""
    made = tmp_path_factory.mktemp("there")
    (made / "agents.py").write_text(AGENTS)
    sys.path.insert(0, str(made))
    with contextlib.chdir(made):
        runner = CliRunner()
        for words in (["run", "agents:talker", "Talk."], ["export", "--output", "runs.jsonl"]):
            assert 0 == runner.invoke(cli, [*words, "--store", "sqlite:///there.db"]).exit_code
        yield made
    sys.path.remove(str(made))
    sys.modules.pop("agents", None)


@pytest.fixture
def agentkit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Agentkit:
    """The command in this process, in that folder."""
    monkeypatch.chdir(folder)
    runner = CliRunner()
    return lambda *arguments, **environment: runner.invoke(cli, arguments, env=environment)


def told(result: Result, *codes: int) -> str:
    """The one line that was told."""
    assert result.exit_code in codes, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert SECRET not in result.output
    assert "" == result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def told_as_json(result: Result, *codes: int) -> str:
    """The same of `--json`, where it is a document on standard output."""
    assert result.exit_code in codes, result.output
    assert SECRET not in result.output
    assert "" == result.stderr
    assert {"error", "message", "run", "facts"} == set(json.loads(result.stdout))
    return str(json.loads(result.stdout)["message"])


def test_the_table_has_every_command_on_a_store() -> None:
    """A new command with `--store` is tried here too, with arguments that click accepts."""
    needed = [
        name
        for name, it in commands(cli)
        if any(one.name == "store" for one in it.params)
        and any(isinstance(one, click.Argument) and one.required for one in it.params)
    ]

    assert set(needed) <= {*ARGUMENTS, *GOES_ON}
    assert {*GOES_ON, *LOOKS} <= set(ON_ONE_STORE)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (url, name)
        for url in ("postgresql", "redis")
        for name in ON_ONE_STORE
        if name not in GOES_ON | LOOKS and (url, name) not in NOTHING_TO_DO
    ],
)
def test_f118_a_store_that_is_down_is_told_in_one_line(
    agentkit: Agentkit, url: str, name: str
) -> None:
    """Exit code 6, whatever the command; by option and by environment, as text and as JSON."""
    words = [*name.split(), *ARGUMENTS.get(name, [])]
    has_json = any(one.name == "as_json" for one in dict(commands(cli))[name].params)

    by_option = told(agentkit(*words, "--store", DEAD[url]), 6)
    by_environment = told(agentkit(*words, AGENTKIT_STORE_URL=DEAD[url]), 6)
    if has_json:
        assert told_as_json(agentkit(*words, "--json", "--store", DEAD[url]), 6)

    assert "127.0.0.1" in by_option
    assert by_option == by_environment


@pytest.mark.parametrize("url", DEAD)
def test_f118_no_form_of_an_address_shows_its_password(agentkit: Agentkit, url: str) -> None:
    """Not where the store is looked at, nor on either side of a copy, nor by `doctor`."""
    for words in (
        ["runs", "--store", DEAD[url]],
        ["copy", DEAD[url], "sqlite:///new.db"],
        ["copy", "sqlite:///there.db", DEAD[url]],
    ):
        assert "store" in told(agentkit(*words), 6)
        told_as_json(agentkit(*words, "--json"), 6)
    found = agentkit("doctor", "--store", DEAD[url])
    as_json = agentkit("doctor", "--json", "--store", DEAD[url])

    assert (6, 6) == (found.exit_code, as_json.exit_code), found.output
    assert SECRET not in found.output + as_json.output


@pytest.mark.parametrize(
    "url",
    [
        f"host=127.0.0.1 port=1 dbname=db user=u password={SECRET}",
        f"host=127.0.0.1 password='{SECRET} and {SECRET}' dbname=db",
        f"u:{SECRET}@127.0.0.1/db",
        f"mysql://u:{SECRET}@127.0.0.1/db",
        f"postgresql:/u:{SECRET}@127.0.0.1/db",
        f"postgresql://u:{SECRET}@127.0.0.1:port/db",
        f"postgresql://u:{SECRET}/{SECRET}@127.0.0.1/db",
        f"postgresql://u:{SECRET}@{SECRET}@127.0.0.1/db",
        f"postgresql://u:{SECRET}@127.0.0.1/db?schema=100%25",
        f"postgresql://u:{SECRET}@127.0.0.1/db?no_such_option=1",
        f"postgresql://u@127.0.0.1/db?pass={SECRET}&password={SECRET}",
        f"redis://u:{SECRET}@127.0.0.1:port/0",
        f"redis://u:{SECRET}@127.0.0.1/zero",
        f"redis+sentinel://u:{SECRET}@127.0.0.1:26379",
        f"redis+cluster://u:{SECRET}@127.0.0.1/7",
    ],
)
def test_f118_an_address_that_is_refused_is_a_usage_error_without_its_password(
    agentkit: Agentkit, folder: Path, url: str
) -> None:
    """Exit code 2, before anything is connected to or made."""
    for words in (["runs", "--store", url], ["copy", url, "sqlite:///never.db"]):
        told(agentkit(*words), 2)
        told_as_json(agentkit(*words, "--json"), 2)

    assert not (folder / "never.db").exists()


@pytest.mark.postgres
def test_f118_a_postgres_that_lets_nobody_in_says_why(
    agentkit: Agentkit, postgres_server: PostgresServer
) -> None:
    """A wrong password, a database that is not there, a role that is not there."""
    server = postgres_server
    server.sql("SET password_encryption = 'scram-sha-256'; CREATE ROLE shy LOGIN PASSWORD 'x'")
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"host all shy all scram-sha-256\n{rules.read_text()}")
    server.sql("SELECT pg_reload_conf()")
    at = f"127.0.0.1:{server.port}"
    while lets_in(f"postgresql://shy:{SECRET}@{at}/postgres"):
        pass

    def answer(user: str, database: str) -> str:
        url = f"postgresql://{user}:{SECRET}@{at}/{database}"
        told_as_json(agentkit("runs", "--json", "--store", url), 6)
        return told(agentkit("runs", "--store", url), 6)

    wrong, nowhere = answer("shy", "postgres"), answer("postgres", "none")
    nobody = answer("nobody", "postgres")

    assert "password authentication failed" in wrong
    assert "none" in nowhere
    assert "nobody" in nobody


def lets_in(address: str) -> bool:
    """Whether the server has not yet read its rules anew."""
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.postgres
def test_f118_a_store_that_is_used_shows_no_password_either(
    agentkit: Agentkit, postgres_dsn: str
) -> None:
    """Not even in the command that would carry a run on."""
    url = postgres_dsn.replace("postgres@", f"postgres:{SECRET}@")

    def output(*words: str) -> str:
        done = agentkit(*words, "--store", url)
        assert done.exit_code == (words[0] == "doctor"), done.output  # this server may lose entries
        return done.output

    shown = [
        output(*words, *more)
        for words in (
            ["run", "agents:looker", "Look.", "--run-id", "r1"],
            ["show", "r1"],
            ["runs"],
            ["status"],
            ["doctor"],
            ["migrate"],
            ["gc", "--older-than", "1d"],
        )
        for more in ([], ["--json"])
    ]
    shown.append(output("fork", "r1", "--from", "latest"))

    assert SECRET not in "".join(shown)
    assert "agentkit resume" in shown[-1]
    assert "postgres:***@" in shown[-1]


@pytest.mark.redis
def test_f118_a_redis_that_lets_nobody_in_says_why(
    agentkit: Agentkit, redis_server: RedisServer
) -> None:
    """A user or a password that it does not know."""
    at = f"127.0.0.1:{redis_server.port}"

    for user in ("u", ""):
        for words in (["runs"], ["run", "agents:talker", "Talk."]):
            told(agentkit(*words, "--store", f"redis://{user}:{SECRET}@{at}/0"), 6)


@pytest.mark.parametrize(
    ("module", "url"),
    [("psycopg", DEAD["postgresql"]), ("redis", DEAD["redis"])],
    ids=["postgres", "redis"],
)
def test_f118_a_driver_that_is_missing_is_named_and_the_password_is_not(
    agentkit: Agentkit, monkeypatch: pytest.MonkeyPatch, module: str, url: str
) -> None:
    """Exit code 2 and what to install."""
    driver = {"psycopg": _postgres_errors.driver, "redis": _redis_errors.driver}[module]
    monkeypatch.setitem(sys.modules, module, None)
    driver.cache_clear()

    line = told(agentkit("runs", "--store", url), 2)

    assert "pip install" in line
    driver.cache_clear()
