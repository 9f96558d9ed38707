"""The reference of deadlines and limits says what the code says."""

import ast
import inspect
import re
from collections.abc import Iterator
from pkgutil import resolve_name

from tests.architecture.source import PACKAGE, modules, tree
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "reference" / "limits.md"

LIMIT = re.compile(
    r"(MAX_|DEFAULT_MAX)\w+|[A-Z]\w*_(SECONDS|BYTES|CHARACTERS|ATTEMPTS|ROWS|ROUNDS)"
)

EXCUSED: dict[str, str] = {}
"""Constants that look like limits and are none, each with its reason."""


def test_every_row_tells_the_value_that_the_code_has() -> None:
    """A name of the table resolves, and what stands beside it is its value."""
    rows = dict(_rows())

    assert rows, "the tables have moved: this test reads nothing"
    assert {name: _value(name) for name in rows} == rows


def test_every_limit_of_the_code_is_listed() -> None:
    """A public constant named like a limit has a row, or a reason not to have one."""
    constants = set(_constants())

    assert set() == constants - dict(_rows()).keys() - EXCUSED.keys()
    assert set() == EXCUSED.keys() - constants


def test_the_column_of_ways_to_set_names_parameters_that_exist() -> None:
    """What follows an opening parenthesis in the last column is a parameter of that callable."""
    homes = {
        "@tool": "agentkit.tool",
        "claude": "agentkit.models.providers.frontiers.claude",
        "drain": "agentkit.agents.drain",
        "run_command": "agentkit.tools.run_command",
        "Invoker": "agentkit.Invoker",
        "ReActCognition": "agentkit.ReActCognition",
        "Services": "agentkit.Services",
        "Worker": "agentkit.dispatch.Worker",
        "PostgresCheckpointStore": "agentkit.state.checkpoints.adapters.PostgresCheckpointStore",
        "RedisCheckpointStore": "agentkit.state.checkpoints.adapters.RedisCheckpointStore",
        "SqliteCheckpointStore": "agentkit.state.checkpoints.adapters.SqliteCheckpointStore",
    }
    ways = re.findall(r"`([@\w]+)\((\w+)=…\)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)

    unknown = [
        (home, parameter)
        for home, parameter in ways
        if parameter not in inspect.signature(resolve_name(homes[home])).parameters
    ]

    assert ways
    assert [] == unknown


def _rows() -> Iterator[tuple[str, object]]:
    for name, value in re.findall(
        r"^\| `(agentkit\.[^`]+)` \| ([^|]+) \|", PAGE.read_text("utf-8"), re.MULTILINE
    ):
        yield name, ast.literal_eval(value.strip())


def _value(row: str) -> object:
    found = re.fullmatch(r"(.+)\((\w+)\)", row)
    if found is None:
        value: object = resolve_name(row)
        return value
    default: object = inspect.signature(resolve_name(found[1])).parameters[found[2]].default
    return default


def _constants() -> Iterator[str]:
    """Dotted names of all constants that are named like limits, test doubles excepted."""
    for path in modules(PACKAGE):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if "testing" in parts:
            continue
        for node in tree(path).body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ) if LIMIT.fullmatch(name):
                    yield ".".join((*parts, name))
