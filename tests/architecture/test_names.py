"""What a module shows is what it says it shows."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import agentkit
from tests.architecture.source import PACKAGE, hold, modules, tree, where

DOUBLES = [PACKAGE / "core" / "testing", PACKAGE / "testing"]


def test_all_lists_exactly_the_public_names() -> None:
    """`__all__` has all that a public module defines, and nothing else.

    A package also lists the names of its own rooms, and may hand on those of a lower layer.
    """
    broken = {}
    for path in filter(_is_public, modules(PACKAGE)):
        listed = {name for name in _all(path) if not name.startswith("_")}
        unlisted = {name for name in _own(tree(path), path) if not name.startswith("_")} - listed
        unbound = listed - {*_own(tree(path), path), *_handed_on(path)}
        if unlisted or unbound:
            broken[where(path)] = f"missing: {sorted(unlisted)}, too many: {sorted(unbound)}"

    hold(broken, excused={}, rule="__all__ is the list of a module's public names")


def test_every_top_level_name_resolves() -> None:
    """Each name that `agentkit` offers lazily is really there."""
    missing = [name for name in agentkit.__all__ if not hasattr(agentkit, name)]

    assert [] == missing


def test_no_test_double_is_reachable_from_the_top() -> None:
    """Neither a name of `agentkit` nor a module loaded by resolving them all is a test double."""
    doubles = {name for folder in DOUBLES for path in modules(folder) for name in _all(path)}
    program = (
        "import agentkit, json, sys\n"
        "names = [*dir(agentkit), *(n for n in agentkit.__all__ if getattr(agentkit, n))]\n"
        "print(json.dumps([names, [m for m in sys.modules if '.testing' in m]]))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names, loaded = json.loads(shown.stdout)

    assert doubles, "the doubles moved: this test looks in the wrong folders"
    assert set() == doubles & set(names)
    assert [] == [module for module in loaded if module.startswith("agentkit.")]


def _is_public(path: Path) -> bool:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return not any(part.startswith("_") and not part.startswith("__") for part in parts)


def _all(path: Path) -> list[str]:
    for node in tree(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                return list(ast.literal_eval(value))
    return []


def _own(node: ast.Module | ast.If, path: Path) -> Iterator[str]:
    package = ".".join(("agentkit", *path.parent.relative_to(PACKAGE).parts))
    for child in node.body:
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(module=str(module), names=names) if (
                path.name == "__init__.py" and module.startswith(f"{package}.")
            ):
                yield from (alias.asname or alias.name for alias in names)
            case ast.If():
                yield from _own(child, path)


def _handed_on(path: Path) -> Iterator[str]:
    if path.name == "__init__.py":
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                yield from (alias.asname or alias.name for alias in node.names)
