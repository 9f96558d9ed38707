"""A file has one subject and a function fits a screen."""

import ast
from collections.abc import Iterator

from tests.architecture.source import PACKAGE, hold, modules, tree, where

FILE_LINES = 400
FUNCTION_LINES = 50

# Where the rule would make the code worse: "path" or "path::function", and why.
LONG_FILES: dict[str, str] = {
    "src/agentkit/core/contracts/entries.py": "the facts stand side by side, as their union does",
}
LONG_FUNCTIONS: dict[str, str] = {
    "src/agentkit/tools/decorator.py::tool": "its docstring is where every option is described",
}


def test_files_stay_short() -> None:
    """No file of the package is longer than 400 lines."""
    lengths = {where(path): len(path.read_text("utf-8").splitlines()) for path in modules(PACKAGE)}
    broken = {place: f"{lines} lines" for place, lines in lengths.items() if lines > FILE_LINES}

    hold(broken, excused=LONG_FILES, rule=f"a file has at most {FILE_LINES} lines")


def test_functions_stay_short() -> None:
    """No function of the package is longer than 50 lines, its docstring included."""
    broken = {
        f"{where(path)}::{name}": f"{lines} lines"
        for path in modules(PACKAGE)
        for name, lines in _functions(tree(path))
        if lines > FUNCTION_LINES
    }

    hold(broken, excused=LONG_FUNCTIONS, rule=f"a function has at most {FUNCTION_LINES} lines")


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}."
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", (child.end_lineno or 0) - child.lineno + 1
        yield from _functions(child, name)
