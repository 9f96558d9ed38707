"""Stores of other distributions, by their entry points."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentkit.core.contracts.errors import AgentkitError, InvalidStoreUrl, StoreError
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore, open_store

MODULE = """
from agentkit.core.contracts.errors import InvalidStoreUrl
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore

def make(url):
    store = InMemoryCheckpointStore()
    store.url = url
    return store

def refuse(url):
    raise InvalidStoreUrl("this one wants a port")

def fail(url):
    raise RuntimeError("no " + url)

def wrong(url):
    return url
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed distribution with stores, good and bad."""
    info = tmp_path / "my_stores-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-stores\nVersion: 1.2\n")
    points = ["mine=make", "refusing=refuse", "failing=fail", "wrong=wrong", "sqlite=make"]
    lines = [one.replace("=", " = my_stores_module:") for one in points]
    lines.append("missing = my_missing_module:make")
    (info / "entry_points.txt").write_text("\n".join(["[agentkit.stores]", *lines, ""]))
    (tmp_path / "my_stores_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("distribution")
def test_a_scheme_of_another_distribution_opens_its_store() -> None:
    """It gets the whole URL, secrets included; the scheme may be written in capitals."""
    for url in ("mine://user:secret@host/x", "MINE://host"):
        store = open_store(url)

        assert isinstance(store, InMemoryCheckpointStore)
        assert url == getattr(store, "url", "")


@pytest.mark.usefixtures("distribution")
def test_our_own_schemes_cannot_be_taken_over(tmp_path: Path) -> None:
    """Whatever is installed, `sqlite` is our store."""
    store = open_store(f"sqlite:///{tmp_path}/runs.db")

    assert "SqliteCheckpointStore" == type(store).__name__


@pytest.mark.usefixtures("distribution")
@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("refusing://x", InvalidStoreUrl, "wants a port"),
        ("failing://u:secret@x", StoreError, "my-stores 1.2"),
        ("missing://u:secret@x", StoreError, "my-stores 1.2"),
        ("wrong://u:secret@x", StoreError, "no JournalPort"),
        ("nobody://u:secret@x", InvalidStoreUrl, "unknown"),
    ],
)
def test_a_store_that_cannot_be_made_is_an_error_of_ours(
    url: str, error: type[AgentkitError], says: str
) -> None:
    """It names the distribution, and no password."""
    with pytest.raises(error) as refused:
        open_store(url)

    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


def test_two_distributions_for_one_scheme_are_refused(
    distribution: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them would be taken is nobody's guess."""
    info = distribution / "second" / "other_stores-3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-stores\nVersion: 3\n")
    (info / "entry_points.txt").write_text("[agentkit.stores]\nmine = my_stores_module:fail\n")
    monkeypatch.syspath_prepend(str(info.parent))

    with pytest.raises(InvalidStoreUrl, match=r"my-stores 1\.2 .*other-stores 3"):
        open_store("mine://x")


def test_opening_our_own_store_looks_at_no_entry_point() -> None:
    """Reading the metadata of all that is installed takes time."""
    program = (
        "import importlib.metadata as m, sys\n"
        "def refuse(**_): sys.exit('looked')\n"
        "m.entry_points = refuse\n"
        "from agentkit.state.checkpoints.adapters import open_store\n"
        "open_store('memory://'); open_store('sqlite:///x.db')\n"
    )
    assert 0 == subprocess.run([sys.executable, "-c", program], check=False).returncode
