import collections
import contextlib
import dataclasses
import enum
import json
import math
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import ResultNotStorable
from agentkit.core.contracts.plain import MAX_DEPTH, MAX_INT_BITS
from agentkit.core.contracts.values import (
    canonical,
    decode_value,
    digest,
    encode_value,
    normalise,
    parse_arguments,
    to_text,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "values.md"


def _nothing() -> Iterator[int]:
    yield from ()


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Card:
    name: str
    tags: tuple[str, ...]


class Record(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    name: str
    at: date


EXAMPLES: dict[str, list[object]] = {
    "`None`": [None],
    "`bool`": [True],
    "`int`": [2**64],
    "`int` below 64 bits": [-(2**63) - 1],
    "`float`": [1.5],
    "`float` zero below zero": [-0.0],
    "`float` NaN": [math.nan, -math.nan],
    "`float` infinity": [math.inf],
    "`float` negative infinity": [-math.inf],
    "`str`": ["é😀"],
    "`str` with NUL": ["a\x00b"],
    "`str` with a lone surrogate": ["C:\\\udc97"],
    "`bytes`, `bytearray`, `memoryview`": [
        b"\xff\xfe",
        bytearray(b"\xff\xfe"),
        memoryview(b"\xff\xfe"),
    ],
    "`list`, `tuple`, `deque`": [[1, 2], (1, 2), collections.deque([1, 2])],
    "named tuple": [Point(1, 2)],
    "`set`, `frozenset` of numbers (by size)": [{10, 2}, frozenset({2, 10})],
    "`set`, `frozenset` of anything else (by JSON text)": [{(1,), "b", "a"}],
    "`dict` and every other `Mapping`": [
        {"b": 1, "a": 2},
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(int, b=1, a=2),
        MappingProxyType({"b": 1, "a": 2}),
    ],
    "`dict` with keys `1`, `2.5`, `True`, `None` or an Enum": [
        {7: 1, 2.5: 2, True: 3, None: 4, Colour.RED: 5}
    ],
    "`dict` that looks like a tag": [{"$bytes": "//4="}],
    "`dict` whose key has a lone surrogate": [{"\udc97": 1}],
    "dataclass (its fields)": [Card("n", ("t",))],
    "`msgspec.Struct` (its fields)": [Record("n")],
    "pydantic model (its `model_dump()`)": [Model(name="n", at=date(2024, 5, 6))],
    "`Enum` (its value)": [Colour.RED],
    "`Decimal`": [Decimal("1.50")],
    "`datetime`": [datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=2)))],
    "`date`": [date(2024, 5, 6)],
    "`time`": [time(7, 8, 9)],
    "`timedelta` (in seconds)": [timedelta(minutes=1, seconds=30)],
    "`UUID`": [UUID(int=7)],
    "`Path`": [PurePosixPath("a/b")],
}


def _rows() -> dict[str, tuple[str, str]]:
    """Of the page's first table: type, JSON text, what comes back."""
    table = PAGE.read_text("utf-8").partition("Comes back as |\n")[2].partition("\n\n")[0]
    rows = {}
    for line in table.splitlines()[1:]:
        kind, stored, back = (cell.strip() for cell in line.strip("|").split(" | "))
        rows[kind] = (stored.strip("`"), back.strip("`"))
    return rows


ROWS = _rows()


def test_the_page_lists_the_types_that_are_tried_here() -> None:
    """No row without an example, no example without a row."""
    assert list(EXAMPLES) == list(ROWS)


@pytest.mark.parametrize("kind", ROWS)
def test_f086_each_type_is_kept_as_the_page_says(kind: str) -> None:
    """Stored text and value that comes back are those of the published table."""
    stored, back = ROWS[kind]

    for value in EXAMPLES[kind]:
        assert stored == encode_value(value)
        assert back == repr(decode_value(encode_value(value)))


text = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
keys = st.one_of(text, st.sampled_from(["$float", "$bytes", "$str", "$object", "a"]))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**80), max_value=2**80),
    st.floats(),
    text,
    st.binary(max_size=8),
    st.decimals(),
    st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.uuids(),
    st.timedeltas(),
    st.sampled_from([Colour.RED, Point(1, 2), PurePosixPath("a"), Record("é")]),
)


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.tuples(inner, inner),
        st.builds(Card, text, st.tuples(text)),
        st.frozensets(st.one_of(st.integers(), text, st.floats()), max_size=4),
        st.sampled_from(["$float", "$bytes", "$str", "$object"]).flatmap(
            lambda tag: inner.map(lambda value: {tag: value})
        ),
    )


values = st.recursive(leaves, _nested, max_leaves=20)
json_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), text)
json_values = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_f086_live_equals_resumed(value: object) -> None:
    """What a live run goes on with is what reading its stored form gives, however often."""
    live = decode_value(encode_value(value))
    resumed = decode_value(encode_value(live))

    assert repr(live) == repr(resumed)
    assert encode_value(value) == encode_value(live)
    assert to_text(value) == to_text(live)
    assert canonical([value]) == canonical([live])


@given(json_values)
def test_json_comes_back_equal(value: object) -> None:
    """JSON data is kept as it is: floats and big integers exactly, lone surrogates, key order."""
    back = decode_value(encode_value(value))

    assert repr(value) == repr(back)


@given(values)
def test_f083_stored_text_is_strict_json(value: object) -> None:
    """No bare NaN and no lone surrogate reaches a store or a provider."""
    for shown in (encode_value(value), to_text(value)):
        shown.encode("utf-8")
    json.loads(encode_value(value), parse_constant=_never)
    if not isinstance(normalise(value), str | None) and not to_text(value).startswith("{"):
        json.loads(to_text([value]), parse_constant=_never)


def _never(name: str) -> object:
    raise AssertionError(name)


def test_f081_nul_and_its_escape_stay_different() -> None:
    """A NUL and the six characters that write one are two different texts, in every form."""
    nul, six = "a\x00b", "a\\u0000b"

    assert [nul, six] == [decode_value(encode_value(nul)), decode_value(encode_value(six))]
    assert to_text(nul) == nul
    assert to_text(six) == six


def test_f082_surrogates_are_exact_in_values_and_mended_once_in_text() -> None:
    """A value keeps lone surrogates exactly; text for the model joins halves, replaces the rest."""
    halves = "\ud83d\ude00"
    lone = "x\udc97"

    assert [halves, lone] == decode_value(encode_value([halves, lone]))
    assert to_text(halves) == "😀"
    assert to_text(lone) == "x\ufffd"


def test_f084_big_integers_are_exact() -> None:
    """No integer passes through a float."""
    numbers = [2**64, -(2**63) - 1, 2**53 + 1, 10**1000]
    arguments = parse_arguments(json.dumps({"n": numbers}))

    assert numbers == decode_value(encode_value(numbers))
    assert {"n": numbers} == arguments
    assert json.loads(canonical({"n": numbers})) == arguments


def test_f085_keys_that_would_become_one_are_refused() -> None:
    """Two keys never become one silently; the message names the place."""
    with pytest.raises(ResultNotStorable, match=r"^\$\.rows\[1\]\[\"1\"\]: two keys"):
        normalise({"rows": [0, {1: "a", "1": "b"}]})
    with pytest.raises(ResultNotStorable, match=r"^\$: a key of type tuple"):
        normalise({(1, 2): "d"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(object(), r"^\$: a value of type object cannot", id="unknown"),
        pytest.param({"a": [_nothing()]}, r"^\$\.a\[0\]: .*generator", id="generator"),
        pytest.param([int], r"^\$\[0\]: the class int", id="class"),
        pytest.param({"a b": len}, r'^\$\["a b"\]: .*builtin_function', id="function"),
        pytest.param(Card("n", (pydantic.SecretStr("s"),)), r"^\$\.tags\[0\]: ", id="secret"),  # type: ignore[arg-type]
        pytest.param(2 ** (MAX_INT_BITS + 1), r"^\$: an integer of 14002 bits", id="integer"),
        pytest.param([{2**MAX_INT_BITS: 1}], r"^\$\[0\]: an integer", id="integer-key"),
        pytest.param({1j: 1}, r"^\$: a key of type complex", id="key"),
    ],
)
def test_f073_what_has_no_rule_is_refused(value: object, message: str) -> None:
    """The error says where and of which type; nothing is turned into its `repr`."""
    with pytest.raises(ResultNotStorable, match=message):
        normalise(value)


def test_f073_a_socket_and_a_coroutine_are_refused() -> None:
    """Handles on the outside are no data."""

    async def later() -> None: ...

    coroutine = later()
    with socket.socket() as handle, pytest.raises(ResultNotStorable, match=r"socket\.socket"):
        normalise({"s": handle})
    with pytest.raises(ResultNotStorable, match="coroutine"):
        normalise(coroutine)
    coroutine.close()


def _list_in_itself() -> object:
    value: list[object] = []
    value.append({"again": value})
    return value


def _card_in_itself() -> object:
    card = Card("n", ())
    card.tags = (card,)  # type: ignore[assignment]
    return card


@pytest.mark.parametrize("make", [_list_in_itself, _card_in_itself])
def test_f073_cycles_are_refused(make: Callable[[], object]) -> None:
    """A value that contains itself is named as such, with a path that stays readable."""
    with pytest.raises(ResultNotStorable, match="contains itself") as caught:
        normalise(make())

    assert len(str(caught.value)) < 200


def test_a_value_may_nest_a_hundred_levels() -> None:
    """The limit counts objects and arrays, and holds for reading as for writing."""
    deep: object = "x"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    tagged: object = b"x"
    for _ in range(MAX_DEPTH):
        tagged = {"$object": tagged}

    assert deep == decode_value(encode_value(deep))
    assert tagged == decode_value(encode_value(tagged))
    with pytest.raises(ResultNotStorable, match="deeper than 100"):
        normalise([deep])
    for text_ in ("[" * 101 + "]" * 101, "[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            decode_value(text_)


def test_a_value_whose_own_code_breaks_is_refused() -> None:
    """An error inside a model's dump is the value's error, with its cause."""

    class Broken:
        def model_dump(self) -> dict[str, object]:
            raise RuntimeError("no")

    with pytest.raises(ResultNotStorable, match="RuntimeError: no"):
        normalise(Broken())


def test_subclasses_of_plain_types_become_plain() -> None:
    """Nothing of a subclass survives, so nothing of it can differ after a restart."""

    class Text(str):
        __slots__ = ()

    class Number(int):
        pass

    class Real(float):
        pass

    back = normalise([Text("a"), Number(3), Real(-0.0), {Text("k"): Text("v")}])

    assert isinstance(back, list)
    assert "['a', 3, -0.0, {'k': 'v'}]" == repr(back)
    assert [str, int, float, dict] == [type(item) for item in back]


@pytest.mark.parametrize(
    "stored",
    [
        '{"$float":"1"}',
        '{"$bytes":"!"}',
        '{"$str":1}',
        '{"$object":[["a"]]}',
        '{"$object":[["a",1],["a",2]]}',
        '{"$object":{"a":1}}',
        '{"$float":"nan","b":1}',
        '{"$new":1}',
        '{"$object":[[1,2]]}',
    ],
)
def test_what_is_not_exactly_a_tag_is_an_object(stored: str) -> None:
    """Reading is total over JSON, so a text that we did not write cannot break a run."""
    assert json.loads(stored) == decode_value(stored)


@given(st.text(max_size=40))
def test_reading_never_runs_into_anything_but_value_error(noise: str) -> None:
    """Damaged text is a `ValueError`."""
    with contextlib.suppress(ValueError):
        decode_value(noise)
    parse_arguments(noise)
    canonical(noise)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        (Colour.RED, "red"),
        (date(2024, 5, 6), "2024-05-06"),
        (0, "0"),
        (False, "false"),
        ([], "[]"),
        ({}, "{}"),
        ({"v": math.nan, "w": math.inf}, '{"v":{"$float":"nan"},"w":{"$float":"inf"}}'),
        ({"b": "é", "a": [1, None]}, '{"b":"é","a":[1,null]}'),
        (b"\xff\xfe", '{"$bytes":"//4="}'),
    ],
)
def test_f087_what_the_model_sees(value: object, shown: str) -> None:
    """Text stays text, nothing is nothing, the rest is compact JSON in its own order."""
    assert shown == to_text(value)


@pytest.mark.parametrize(
    "text_",
    [
        "",
        " ",
        "null",
        "[]",
        '"{}"',
        "{",
        '{"a":1',
        "{}x",
        "{'a':1}",
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":1}}',
        '{"a":01}',
        '{"a":' * 101 + "1" + "}" * 101,
        "[" * 100_000,
        '{"a":' + "9" * 5_000 + "}",
        "\ufeff{}",
    ],
)
def test_f011_arguments_are_never_guessed(text_: str) -> None:
    """What is not exactly one JSON object is no arguments at all."""
    assert parse_arguments(text_) is None


def test_arguments_are_read_exactly() -> None:
    """Whitespace and order are free; numbers, lone surrogates and tag-like members stay."""
    assert parse_arguments(' {"b":1.50,"a":{"$float":"nan"},"s":"\\udc97"}\n') == {
        "b": 1.5,
        "a": {"$float": "nan"},
        "s": "\udc97",
    }


finite = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
    )
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(keys, finite, max_size=4), st.booleans())
def test_one_digest_for_all_spellings(arguments: dict[str, object], ascii_only: bool) -> None:
    """Order, whitespace and escapes of the text do not matter, nor whether it was parsed."""
    written = json.dumps(arguments, ensure_ascii=ascii_only)
    read = parse_arguments(written)
    assert read is not None
    respelled = json.dumps(_reversed(read), indent=2, ensure_ascii=not ascii_only)

    assert digest("t", read) == digest("t", written)
    if parse_arguments(respelled) == read:  # an escape may join two surrogate halves
        assert digest("t", written) == digest("t", respelled)


def _reversed(value: object) -> object:
    if isinstance(value, list):
        return [_reversed(item) for item in value]
    if isinstance(value, dict):
        return {key: _reversed(item) for key, item in reversed(value.items())}
    return value


@pytest.mark.parametrize("noise", ["[" * 100_000, "\udc97", "9" * 4_300, "9" * 5_000, "", "NaN"])
def test_every_text_has_a_digest(noise: str) -> None:
    """Arguments that cannot be read, or not be kept, still name the call that has them."""
    assert digest("t", noise) != digest("t", "{}")


def test_digests_are_stable_and_differ() -> None:
    """A digest is stored; it must be the same in every release, and bound to name and arguments."""
    assert digest("send", '{"to": "a", "n": 1e16}') == digest("send", {"n": 1e16, "to": "a"})
    assert canonical('{"b": [1, 2.0], "a": "é"}') == '{"a":"é","b":[1,2.0]}'
    assert len({digest("a", {}), digest("b", {}), digest("a", {"x": 1}), digest("a", "{")}) == 4
    assert re.fullmatch("[0-9a-f]{32}", digest("a", "{}"))
    assert digest("search", {"query": "octopus"}) == "df0a7d70611194c0f3767f4f8dae54ab"


def test_normalising_does_not_change_its_argument() -> None:
    """The caller's value is read only, and the result shares no container with it."""
    inner: list[int] = [1]
    value: Mapping[str, object] = {"a": inner}

    plain = normalise(value)
    inner.append(2)

    assert {"a": [1]} == plain
