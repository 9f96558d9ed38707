"""The how-to on Redis does what it says, on a Redis."""

from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, Reader

pytestmark = pytest.mark.redis


def test_a_reader_gets_what_the_page_on_redis_shows(redis_url: str, tmp_path: Path) -> None:
    """The address is the reader's own, in `REDIS_URL`."""
    done = Reader(tmp_path, {"REDIS_URL": redis_url}).follow(ROOT / "docs/howto/use-redis.md")

    assert 3 == done
