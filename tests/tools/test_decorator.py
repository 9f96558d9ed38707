import functools
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import agentkit.tools
from agentkit.core.contracts.errors import InvalidSpec
from agentkit.tools import Tool, ToolContext, tool


def plain(x: int) -> int:
    """Double it."""
    return 2 * x


def test_side_effecting_must_be_said() -> None:
    """A tool without it is refused at decoration; so is the bare decorator."""
    with pytest.raises(InvalidSpec, match="side_effecting"):
        tool()(plain)
    with pytest.raises(InvalidSpec, match=r"plain: say whether.*side_effecting=True"):
        tool(plain)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(side_effecting=False, idempotent=True), "needs side_effecting=True"),
        (
            lambda: tool(side_effecting=False, max_attempts=0),
            "max_attempts must be a whole number from 1",
        ),
        (lambda: tool(side_effecting=True, max_attempts=2), "never attempted twice"),
        (lambda: tool(side_effecting=False, max_attempts=True), "max_attempts must be"),
        (lambda: tool(side_effecting=False, max_attempts=1.5), "max_attempts must be"),  # type: ignore[arg-type]
        (lambda: tool(side_effecting=False, timeout=None), "timeout must be"),  # type: ignore[arg-type]
        (lambda: tool(side_effecting=False, description=3), "description must"),  # type: ignore[arg-type]
        (lambda: tool(side_effecting=False, timeout=0), "timeout must be a positive number"),
        (lambda: tool(side_effecting=False, timeout=float("inf")), "timeout must be"),
        (lambda: tool(side_effecting=False, timeout=float("nan")), "timeout must be"),
        (lambda: tool(side_effecting=1), "True or False"),  # type: ignore[arg-type]
        (lambda: tool(side_effecting=False, name="no good"), "letters, digits"),
        (lambda: tool(side_effecting=False, name=""), "letters, digits"),
        (lambda: tool(side_effecting=False, name="a\x00"), "letters, digits"),
        (lambda: tool(side_effecting=False, name="a\n"), "letters, digits"),
        (lambda: tool(side_effecting=False, name="a" * 65), "letters, digits"),
    ],
)
def test_impossible_options_are_refused_at_decoration(
    make: Callable[[], Callable[[object], object]], message: str
) -> None:
    """The error names the tool and says what to do."""
    with pytest.raises(InvalidSpec, match=message):
        make()(plain)


def _variadic(*values: int) -> None: ...
def _keywords(**values: int) -> None: ...
def _positional(value: int, /) -> None: ...
def _bare(value) -> None: ...  # type: ignore[no-untyped-def]
def _key(idempotency_key: str) -> None: ...
def _generator(x: int) -> Iterator[int]:
    yield x


async def _async_generator(x: int) -> AsyncIterator[int]:
    yield x


def _two_contexts(a: ToolContext, b: ToolContext | None) -> None: ...
def _mixed(a: ToolContext | str) -> None: ...


class _Thing:
    def method(self, x: int) -> int:
        """Add."""
        return x + 1

    async def __call__(self, x: int) -> int:
        """Call."""
        return x + 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_variadic, "'values' takes any number of positional"),
        (_keywords, "'values' takes any keyword"),
        (_positional, "'value' is positional-only"),
        (_bare, "'value' has no annotation"),
        (_Thing.method, "'self' has no annotation; to make a tool of a method"),
        (_generator, "return a list instead of yielding"),
        (_async_generator, "return a list instead of yielding"),
        (_two_contexts, "both 'a' and 'b'"),
        (_mixed, "mixes ToolContext"),
        (lambda: None, "letters, digits"),
        (_Thing, "a type is not a function"),
        (7, "a int is not a function"),
        (tool(side_effecting=False)(plain), "a tool already"),
    ],
)
def test_functions_that_cannot_be_tools_are_refused_at_decoration(
    function: Callable[..., object], message: str
) -> None:
    """What a model could not call rightly does not become a tool."""
    with pytest.raises(InvalidSpec, match=message):
        tool(side_effecting=False)(function)


def test_f046_the_model_never_fills_in_the_key() -> None:
    """A parameter of that name is refused with advice; the context's key is not in the schema."""
    with pytest.raises(InvalidSpec, match=r"ToolContext.*idempotency_key"):
        tool(side_effecting=True, idempotent=True)(_key)

    @tool(side_effecting=True, idempotent=True)
    def pay(amount: int, context: ToolContext) -> str:
        return context.idempotency_key

    assert ["amount"] == list(_properties(pay))


def test_a_tool_is_still_called_like_its_function() -> None:
    """Tests and other code call it directly; it looks like the function it was made of."""
    doubled = tool(side_effecting=False)(plain)

    assert doubled(4) == 8
    assert doubled.__doc__ == "Double it."
    assert vars(doubled)["__name__"] == "plain"
    assert inspect.signature(doubled) == inspect.signature(plain)


async def test_an_async_tool_is_still_awaited_like_its_function() -> None:
    """The type of the result is kept."""

    @tool(side_effecting=False)
    async def double(x: int) -> int:
        return 2 * x

    result: int = await double(4)

    assert result == 8
    assert double.is_async


def test_options_are_what_was_said() -> None:
    """Defaults are the published ones; a tool is frozen."""
    quiet = tool(side_effecting=False)(plain)
    keyed = tool(side_effecting=True, idempotent=True, max_attempts=3, timeout=1, name="k")(plain)

    assert (quiet.timeout, quiet.max_attempts, quiet.idempotent, quiet.name) == (
        300.0,
        None,
        False,
        "plain",
    )
    assert (keyed.timeout, keyed.max_attempts, keyed.name) == (1, 3, "k")
    assert [True, True, False] == [
        one.repeatable for one in (quiet, keyed, tool(side_effecting=True)(plain))
    ]
    with pytest.raises(AttributeError):
        quiet.timeout = 1.0  # type: ignore[misc]


def test_bound_methods_partials_and_callables_can_be_tools() -> None:
    """What is bound already is hidden from the model."""

    def add(x: int, y: int, unit: str = "m") -> str:
        return f"{x + y}{unit}"

    method = tool(side_effecting=False)(_Thing().method)
    partial = tool(side_effecting=False)(functools.partial(add, 1, unit="s"))
    callable_ = tool(side_effecting=False, name="thing")(_Thing())

    assert (method.name, method.definition.description, ["x"]) == (
        "method",
        "Add.",
        list(_properties(method)),
    )
    assert (partial.name, ["y"], "3s") == ("add", list(_properties(partial)), partial(2))
    assert callable_.is_async
    assert callable_.definition.description == "Call."


def test_every_public_name_resolves() -> None:
    """The package offers its names lazily, and only these."""
    assert [] == [name for name in agentkit.tools.__all__ if not hasattr(agentkit.tools, name)]
    assert set(agentkit.tools.__all__) <= set(dir(agentkit.tools))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = agentkit.tools.nothing  # type: ignore[attr-defined]


def _properties(made: Tool) -> dict[str, object]:
    properties = made.definition.parameters["properties"]
    assert isinstance(properties, dict)
    return dict(properties)


def test_the_pages_example_runs() -> None:
    """The first example of the reference page is a program."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "tools.md"
    example = page.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    check = "assert list(pay.definition.parameters['properties']) == ['invoice', 'cents']"

    subprocess.run([sys.executable, "-c", f"{example}\n{check}"], check=True)
