"""Server-sent events from bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.models.providers._sse import EventTooLarge, SSEDecoder

STREAM = (
    b"\xef\xbb\xbfdata: first\n\n: a comment\nevent: x\nid: 7\nretry: 5\ndata: a\ndata:b\n"
    b"data\nnonsense\n\n\n\nevent: no data\n\ndata: \xf0\x9f\x91\x8b\n\ndata: cut off"
)
EVENTS = ["first", "a\nb\n", "👋"]


def _fed(*chunks: bytes) -> list[str]:
    decoder = SSEDecoder()
    return [event for part in chunks for event in decoder.feed(part)]


@given(
    cuts=st.lists(st.integers(0, len(STREAM)), max_size=12),
    end=st.sampled_from(["\n", "\r", "\r\n"]),
)
def test_borders_of_chunks_and_kinds_of_line_ends_mean_nothing(cuts: list[int], end: str) -> None:
    """The same events come out however the bytes are cut, with each of the three line ends."""
    data = STREAM.replace(b"\n", end.encode())
    borders = [0, *sorted(cuts), len(data)]

    assert EVENTS == _fed(*(data[a:b] for a, b in pairwise(borders)))
    assert EVENTS == _fed(*(data[at : at + 1] for at in range(len(data))))


def test_bytes_that_are_no_text_do_not_stop_the_stream() -> None:
    """What is not UTF-8 becomes U+FFFD; whether it is an event is for the reader of its data."""
    assert ["\ufffd"] == _fed(b"data: \xff\n\n")


@pytest.mark.parametrize("line", [b"x" * 5, b"data: x\n" * 3], ids=["line", "event"])
def test_what_grows_beyond_the_limit_is_an_error(line: bytes) -> None:
    """Neither a line nor an event of many lines is collected for ever."""
    decoder = SSEDecoder(max_event_bytes=100)
    with pytest.raises(EventTooLarge):
        [decoder.feed(line) for _ in range(50)]
