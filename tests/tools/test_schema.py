from __future__ import annotations

import dataclasses
import enum
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Optional
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from agentkit import tools
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.core.contracts.types import JSON
from agentkit.core.contracts.values import parse_arguments
from agentkit.tools import ArgumentsInvalid, Tool, tool

if TYPE_CHECKING:
    from fractions import Fraction

    from agentkit.tools import ToolContext


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    """Where somebody lives."""

    title: str = Field(title="Form of address", description="As on the envelope.")
    lines: list[str] = []


@dataclasses.dataclass
class Box:
    width: int


class Options(TypedDict):
    deep: bool


def _parameters(made: Tool) -> dict[str, dict[str, object]]:
    properties = made.definition.parameters["properties"]
    assert isinstance(properties, dict)
    return properties  # type: ignore[return-value]


@pytest.mark.parametrize(
    "docstring",
    [
        """Find pages.

        Looks everywhere.

        Args:
            query: What to look
                for.
            limit: How many.

        Returns:
            The pages.
        """,
        """Find pages.

        Looks everywhere.

        Parameters
        ----------
        query : str
            What to look
            for.
        limit : int
            How many.
        """,
        """Find pages.

        Looks everywhere.

        :param query: What to look
            for.
        :param limit: How many.
        :returns: The pages.
        """,
    ],
    ids=["google", "numpy", "rest"],
)
def test_the_docstring_describes_tool_and_arguments(docstring: str) -> None:
    """All three common styles give the same definition."""

    def find(query: str, limit: int = 3) -> str:
        return query * limit

    find.__doc__ = docstring
    definition = tool(side_effecting=False)(find).definition

    assert definition.name == "find"
    assert definition.description == "Find pages.\n\nLooks everywhere."
    assert definition.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "description": "How many.", "default": 3},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_descriptions_that_are_said_outweigh_the_docstring() -> None:
    """`description=` and `Field(description=…)` win."""

    @tool(side_effecting=False, description="Said.")
    def find(query: Annotated[str, Field(description="Said too.", min_length=2)]) -> str:
        """Docstring.

        Args:
            query: Docstring.
        """
        return query

    assert find.definition.description == "Said."
    assert _parameters(find)["query"] == {
        "type": "string",
        "description": "Said too.",
        "minLength": 2,
    }


def test_a_tool_without_docstring_or_arguments_has_a_definition() -> None:
    """The schema is an empty closed object."""

    @tool(side_effecting=False)
    def now() -> str:
        return "now"

    assert now.definition.description == ""
    assert now.definition.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert {} == now.bind({})


@tool(side_effecting=False)
def everything(
    *,
    colour: Colour,
    mode: Literal["a", "b"],
    when: datetime,
    price: Decimal,
    ident: UUID,
    where: PurePosixPath,
    address: Address,
    box: Box,
    options: Options,
    pair: tuple[int, str],
    maybe: Optional[int],  # noqa: UP045  # the old spelling must work too
    schema: float = 1.0,
    copy: int | None = None,
    _day: date = date(2024, 5, 6),
) -> str:
    """Take one of each."""
    return ""


ONE_OF_EACH: dict[str, JSON] = {
    "colour": "red",
    "mode": "a",
    "when": "2024-05-06T07:08:09Z",
    "price": "1.50",
    "ident": str(UUID(int=7)),
    "where": "a/b",
    "address": {"title": "Dr", "lines": ["x"]},
    "box": {"width": 2},
    "options": {"deep": True},
    "pair": [1, "x"],
    "maybe": None,
    "schema": 3,
}


def test_arguments_become_the_types_of_the_function() -> None:
    """Text that writes a date, an Enum, a Decimal … is read; an int is a float where asked for."""
    bound = everything.bind(ONE_OF_EACH)

    assert bound == {
        "colour": Colour.RED,
        "mode": "a",
        "when": datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
        "price": Decimal("1.50"),
        "ident": UUID(int=7),
        "where": PurePosixPath("a/b"),
        "address": Address(title="Dr", lines=["x"]),
        "box": Box(2),
        "options": {"deep": True},
        "pair": (1, "x"),
        "maybe": None,
        "schema": 3.0,
    }


def test_names_and_titles_do_not_get_in_each_others_way() -> None:
    """Any parameter name works; generated titles are gone, a property called `title` is not."""
    parameters = everything.definition.parameters
    shown = str(parameters)

    assert {"schema", "copy", "_day"} <= set(_parameters(everything))
    assert "Form of address" not in shown
    assert "'title': '" not in shown
    assert "'title': {'description': 'As on the envelope.', 'type': 'string'}" in shown
    assert _parameters(everything)["_day"]["default"] == "2024-05-06"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "green"}, "`colour`: Input should be 'red' or 'blue'"),
        ({"mode": "c"}, "`mode`: "),
        ({"when": 5}, "`when`: "),
        ({"pair": [1]}, "`pair[1]` is required and missing"),
        ({"pair": ["1", "x"]}, "`pair[0]`: Input should be a valid integer"),
        ({"maybe": "5"}, "`maybe`: Input should be a valid integer"),
        ({"maybe": 5.5}, "`maybe`: "),
        ({"maybe": True}, "`maybe`: "),
        ({"schema": "3"}, "`schema`: Input should be a valid number"),
        ({"options": {"deep": 1}}, "`options.deep`: Input should be a valid boolean"),
        ({"box": {}}, "`box.width` is required and missing"),
        ({"address": None}, "`address`: "),
        ({"new": 1}, "`new` is not known (known: colour, mode"),
        ({"a\x00b": 1}, "`a\\u0000b` is not known"),
    ],
)
def test_wrong_arguments_are_explained_and_never_coerced(
    change: dict[str, JSON], message: str
) -> None:
    """The message is for the model: which argument, what is wrong, that nothing was run."""
    with pytest.raises(ArgumentsInvalid) as caught:
        everything.bind({**ONE_OF_EACH, **change})

    assert str(caught.value).startswith("Invalid arguments for everything, which was not run: ")
    assert message in str(caught.value)


def test_missing_arguments_are_named() -> None:
    """What has a default may be left out, and is left to the function."""
    with pytest.raises(ArgumentsInvalid, match="`colour` is required and missing; `mode` is"):
        everything.bind({})

    assert "_day" not in everything.bind(ONE_OF_EACH)


def test_f089_messages_are_short_and_repeat_no_values() -> None:
    """Neither giant input nor what was in it comes back to the journal or the model."""
    secret = "hunter2" * 1000

    changes: list[dict[str, JSON]] = [
        {"when": secret},
        {"mode": secret},
        {"box": {"width": secret}},
        {"address": {"title": "x", "lines": list(range(5000))}},
    ]
    for change in changes:
        with pytest.raises(ArgumentsInvalid) as caught:
            everything.bind({**ONE_OF_EACH, **change})
        assert "hunter2" not in str(caught.value)
        assert len(str(caught.value)) < 2000
    with pytest.raises(ArgumentsInvalid) as caught:
        everything.bind({**ONE_OF_EACH, "k" * 30_000: 1})
    assert len(str(caught.value)) < 2000


def test_f089_a_validators_own_long_message_is_cut() -> None:
    """What a user's validator says is for the model, within bounds."""

    class Picky(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def _refuse(cls, value: int) -> int:
            raise ValueError("no " * 10_000)

    @tool(side_effecting=False)
    def picky(values: list[Picky]) -> str:
        return ""

    with pytest.raises(ArgumentsInvalid, match="Value error, no no") as caught:
        picky.bind({"values": [{"x": 1}] * 10})
    assert "and 5 more" in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_f012_absurd_argument_names_are_refused_with_a_valid_text() -> None:
    """A 300-character key or one with half a character ends in an error that can be sent."""
    for name in ("k" * 300, "\udc97", "a\x00"):
        with pytest.raises(ArgumentsInvalid) as caught:
            everything.bind({**ONE_OF_EACH, name: 1})
        str(caught.value).encode()


def test_a_validator_that_breaks_is_no_crash_of_the_run() -> None:
    """The user's own validators may raise anything."""

    class Odd(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def _break(cls, value: int) -> int:
            raise KeyError(value)

    @tool(side_effecting=False)
    def odd(value: Odd) -> str:
        return ""

    with pytest.raises(ArgumentsInvalid, match="cannot be read: KeyError"):
        odd.bind({"value": {"x": 1}})


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_f084_numbers_reach_the_tool_exactly(number: int, real: float) -> None:
    """Big integers and floats are those that the model wrote."""
    arguments = parse_arguments(f'{{"number": {number * 2**64}, "real": {real!r}}}')
    assert arguments is not None

    assert _numbers.bind(arguments) == {"number": number * 2**64, "real": real}


@tool(side_effecting=False)
def _numbers(number: int, real: float) -> str:
    return ""


@tool(side_effecting=False)
def hidden(x: int, context: ToolContext) -> str:
    """Take a context whose type is imported for type checkers alone."""
    return context.run_id


@tool(side_effecting=False)
def optional(context: ToolContext | None = None, x: int = 1) -> str:
    """Take it or leave it."""
    return ""


@tool(side_effecting=False)
def qualified(context: tools.ToolContext) -> str:
    """Name it through its module."""
    return ""


@pytest.mark.parametrize("made", [hidden, optional, qualified])
def test_the_context_is_not_the_models(made: Tool) -> None:
    """However it is annotated, it is neither in the schema nor accepted as an argument."""
    assert made.signature.context == "context"
    assert "context" not in _parameters(made)
    with pytest.raises(ArgumentsInvalid, match="`context` is not known"):
        made.bind({"x": 1, "context": {}} if made is hidden else {"context": {}})


@tool(side_effecting=False)
def forward(later: Later) -> str:
    """Take a type that is defined further down."""
    return later.name


class Later(BaseModel):
    name: str


def test_types_defined_later_or_locally_are_found() -> None:
    """Annotations are looked up where the tool is decorated, and again at first use."""

    class Local(BaseModel):
        name: str

    @tool(side_effecting=False)
    def local(value: Local, more: list[Local]) -> str:
        return value.name

    assert local.bind({"value": {"name": "x"}, "more": []}) == {
        "value": Local(name="x"),
        "more": [],
    }
    assert forward.bind({"later": {"name": "x"}}) == {"later": Later(name="x")}


def test_types_that_cannot_be_described_are_explained() -> None:
    """The error names tool and parameter and says what to do."""

    @tool(side_effecting=False)
    def fraction(value: Fraction) -> str:
        return ""

    @tool(side_effecting=False)
    def handle(value: object, other: type(sys.stdout)) -> str:  # type: ignore[valid-type]
        return ""

    with pytest.raises(InvalidSpec, match=r"'fraction'.*'Fraction'.*'value'.*TYPE_CHECKING"):
        _ = fraction.definition
    with pytest.raises(InvalidSpec, match="'handle' cannot be described"):
        _ = handle.definition


def test_a_field_as_default_is_refused() -> None:
    """It would reach the function as its default value."""
    with pytest.raises(InvalidSpec, match=r"Annotated\[<type>, Field"):

        @tool(side_effecting=False)
        def find(query: str = Field(description="x")) -> str:
            return query


def test_decorating_loads_neither_pydantic_nor_docstring_parser() -> None:
    """They are loaded when a definition is first needed."""
    program = """
import sys
from agentkit.tools import ArgumentsInvalid, Tool, ToolContext, tool
import agentkit.tools.execute, agentkit.tools.threads
@tool(side_effecting=False)
def find(query: str, context: ToolContext) -> str:
    "Find it."
before = {"pydantic", "docstring_parser"} & set(sys.modules)
find.definition
after = {"pydantic", "docstring_parser"} & set(sys.modules)
print(sorted(before), sorted(after))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[] ['docstring_parser', 'pydantic']\n"
