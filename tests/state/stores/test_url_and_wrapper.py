"""Store URLs, lazy names, and the wrapper to subclass."""

import inspect
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import InvalidStoreUrl
from agentkit.core.contracts.heads import Head, Lease, Row, Summary
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.state.checkpoints import adapters
from agentkit.state.checkpoints.adapters import (
    InMemoryCheckpointStore,
    RedisCheckpointStore,
    SqliteCheckpointStore,
    StoreWrapper,
    open_store,
)
from tests.state.stores.helpers import rows, started, summary


def test_a_url_names_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes are relative, four absolute; a path with a database's ending will do."""
    monkeypatch.chdir(tmp_path)

    assert isinstance(open_store("memory://"), InMemoryCheckpointStore)
    for url, path in (
        ("sqlite:///runs.db", tmp_path / "runs.db"),
        ("sqlite:///sub/runs", tmp_path / "sub" / "runs"),
        (f"sqlite:///{tmp_path}/x%20%3F.db", tmp_path / "x ?.db"),
        ("SQLite:///runs.db", tmp_path / "runs.db"),
        ("runs.db", tmp_path / "runs.db"),
        (f"{tmp_path}/runs.sqlite", tmp_path / "runs.sqlite"),
    ):
        store = open_store(url)
        assert isinstance(store, SqliteCheckpointStore)
        assert f"sqlite:///{path}" == store.location
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "Known ones: memory://"),
        ("runs", "not a store URL"),
        ("sqlite:runs.db:x", "not a store URL"),
        ("sqlite://runs.db", "too few slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///runs.db?mode=ro", "no options"),
        ("memory://shared", "nothing can follow"),
        ("mysql://host/db", "'mysql', which is unknown. Known ones: memory://"),
        ("postgresql://host/db?schema=a&schema=b", "more than one schema"),
        ("postgresql://host/db?schema=", "cannot be the name of a schema"),
        ("postgresql://user:p@ss@host/db", "an @ too many"),
        ("postgresql://host/db?no=option", "the option 'no', which is unknown"),
        ("redis://host/name", "not the number of a database"),
        ("redis://host:port", "does not name a host and a port"),
        ("redis://a,b", "several hosts are a cluster or sentinels"),
        ("redis://host?strict=perhaps", "the option strict cannot have this value"),
        ("redis://host?prefix={a}", "holds a brace"),
        ("redis://host?on_failover=later", "must be 'stop' or 'accept'"),
        ("redis://host?orphan_ttl_seconds=604800", "must be less than head_ttl_seconds"),
        ("redis://host?prefix=a:b", "a brace or a colon"),
        ("redis://host?log_ttl_seconds=nan", "the option log_ttl_seconds cannot have this value"),
        ("redis://host?head_ttl_seconds=inf", "the option head_ttl_seconds cannot have this"),
        ("redis://host?head_ttl_seconds=1e17", "head_ttl_seconds must be positive and at most"),
        ("redis://host?orphan_ttl_seconds=0", "orphan_ttl_seconds must be positive"),
        ("redis://host?timeout_seconds=0", "timeout_seconds must be more than 0"),
        ("redis://host?timeout_seconds=-1", "timeout_seconds must be more than 0"),
        ("redis://host?patience_seconds=nan", "the option patience_seconds cannot have this"),
        ("redis://host?patience_seconds=-1", "patience_seconds must be from 0 to 86400"),
        ("redis://host?prefx=x", "the option prefx is not known. Those of the store are prefix,"),
        ("redis+cluster://host?ssl_ca_certs=x", "the option ssl_ca_certs is not known"),
        ("redis+unix:///a.sock?socket_keepalive=1", "the option socket_keepalive is not known"),
        ("redis+sentinel://host", "names the master"),
        ("redis+cluster://host/1", "has no databases"),
    ],
)
def test_a_url_that_names_none_says_why(url: str, says: str) -> None:
    """The error names what is wrong and what would be right."""
    with pytest.raises(InvalidStoreUrl, match=says):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/1?client_name=me&socket_keepalive=1&prefix=a.b",
        "rediss://host?ssl_ca_certs=x&log_ttl_seconds=none&head_ttl_seconds=none",
        "redis+unix:///a.sock?db=1&client_name=me",
        "redis+sentinel://host/mymaster?sentinel_password=x&timeout_seconds=2.5",
    ],
)
def test_options_of_the_store_and_of_its_connections_are_taken(url: str) -> None:
    """As redis-py names them."""
    assert isinstance(open_store(url), RedisCheckpointStore)


@pytest.mark.parametrize("name", ["patience_seconds", "prefix"])
def test_a_store_that_is_made_by_its_class_takes_its_arguments_there(name: str) -> None:
    """Not in the URL; the message says both doors."""
    with pytest.raises(InvalidStoreUrl, match=rf"RedisCheckpointStore\(url, {name}=…\)"):
        RedisCheckpointStore(f"redis://host?{name}=1")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@host:port/db",
        "postgresql://user:hunter2@host/db?schema=",
        "postgres://user:hunter2@hunter2@host/db",
        "postgresql://user:hun:ter2/@hunter2@host/db?password=hunter2&sslpassword=hunter2",
        "redis://:hunter2@host/x",
        "redis://user:hunter2",
        "redis://user:hun/ter2:hunter2@host",
        "redis+sentinel://user:hunter2@host?sentinel_password=hunter2",
        "mysql://user:hunter2@host",
        "postgresql:/user:hunter2@host",
        "user:hunter2@host/db",
        "host=x password=hunter2",
        "host=x password = 'hunter2 hunter2'",
        "sqlite://user:hunter2@host/runs.db",
        "sqlite:///runs.db?key=hunter2",
        "memory://user:hunter2@x",
    ],
)
def test_f118_no_message_shows_a_password(url: str) -> None:
    """However malformed the URL is, what looks like a secret in it is masked."""
    with pytest.raises(InvalidStoreUrl) as refused:
        open_store(url)

    assert "hunter2" not in str(refused.value)
    assert "***" in str(refused.value)


def test_names_are_loaded_when_they_are_asked_for() -> None:
    """Importing the package loads neither a store nor a driver."""
    program = (
        "import sys\n"
        "import agentkit.state.checkpoints.adapters as adapters\n"
        "from agentkit.state.checkpoints.adapters import SqliteCheckpointStore\n"
        "SqliteCheckpointStore('runs.db')\n"
        "print('apsw' in sys.modules, sorted(adapters.__all__))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert f"False {sorted(adapters.__all__)}\n" == shown.stdout
    with pytest.raises(AttributeError, match="nothing"):
        adapters.nothing  # type: ignore[attr-defined]  # noqa: B018 - asked for on purpose


class Counting(StoreWrapper):
    """A wrapper as a user writes it: it overrides one method and keeps something of its own."""

    def __init__(self, inner: JournalPort) -> None:
        super().__init__(inner)
        self.appended: list[str] = []

    async def append(
        self,
        run: str,
        rows: Sequence[Row],
        *,
        after: int,
        lease: Lease | None,
        summary: Summary,
        release: bool = False,
    ) -> Head:
        """Count and forward."""
        self.appended.append(run)
        return await super().append(
            run, rows, after=after, lease=lease, summary=summary, release=release
        )


async def test_a_wrapper_forwards_everything(store: JournalPort) -> None:
    """A wrapper is a store: the whole port is there, and scoped views are wrappers too."""
    wrapper = Counting(store)
    view = wrapper.scoped(Scope("a"))
    lease = await started(view, "r", 2)

    assert isinstance(view, Counting)
    assert ["r"] == wrapper.appended == view.appended
    assert rows(1, 2) == await view.read("r") == await store.scoped(Scope("a")).read("r")
    assert await wrapper.head("r") is None
    assert not view.renew({"r": lease})["r"].lost
    assert ["r"] == [one.run for one in (await view.list_runs())[0]]
    await view.append("r", [], after=2, lease=lease, summary=summary(), release=True)
    assert store.location == wrapper.location
    assert await view.delete_run("r")
    await wrapper.aclose()


def test_a_wrapper_leaves_nothing_of_the_port_out() -> None:
    """Every method of the port is defined by the wrapper with the port's own signature."""
    for name, member in inspect.getmembers(JournalPort, inspect.isfunction):
        if not name.startswith("_"):
            forwarded = inspect.signature(getattr(StoreWrapper, name)).parameters
            assert inspect.signature(member).parameters.keys() == forwarded.keys(), name


def test_memory_stores_share_nothing() -> None:
    """Each object has its own data and its own location."""
    assert InMemoryCheckpointStore().location != InMemoryCheckpointStore().location


@pytest.mark.parametrize(
    "url",
    [
        "redis://:[S3cret]@host",
        "redis://u:S3cret[@host",
        "redis://u:@S3cret#@host",
        "redis://u:@S3cret?@host",
        "redis://u:12/S3cret@host",
        "redis+sentinel://u:12/S3cret@host/mymaster",
        "redis://u:S3cret\ud800@host",
        "postgresql://u:S3cret\ud800@host/x",
        "postgresql://u:[S3cret]@host/x",
    ],
)
def test_f118_a_password_that_is_not_escaped_is_neither_shown_nor_taken_for_a_host(
    url: str,
) -> None:
    """F118: it is refused before anything is connected to."""
    try:
        shown = open_store(url).location
    except InvalidStoreUrl as refused:
        shown = str(refused) + repr(refused.__cause__)

    assert "S3cret" not in shown


@pytest.mark.parametrize("password", ["a%23b", "a%2Fb", "a%3Fb", "a%40b", "a%5Bb%5D", "a%3Ab"])
def test_a_password_that_is_escaped_is_used_as_it_is_meant(password: str) -> None:
    """Any character can be had."""
    store = open_store(f"redis://me:{password}@host:7000/2")

    assert store.location.startswith("redis://host:7000/2?")
