"""The page on Postgres, followed on a real one."""

from pathlib import Path

import pytest

from agentkit.testing.servers import PostgresServer
from tests.docs.snippets import ROOT, Reader

pytestmark = pytest.mark.postgres


def test_a_reader_gets_what_the_page_on_postgres_shows(tmp_path: Path) -> None:
    """The address is the reader's own, in `POSTGRES_URL`; its server waits for the disk."""
    page = ROOT / "docs/howto/use-postgres.md"
    with PostgresServer() as server:
        done = Reader(tmp_path, {"POSTGRES_URL": server.dsn()}).follow(page)

    assert 5 == done
