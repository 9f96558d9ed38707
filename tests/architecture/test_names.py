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
    """A public module's `__all__` names all that it defines (a package: and re-exports)."""
    broken = {}
    for path in filter(_is_public, modules(PACKAGE)):
        bound = {name for name in _bound(tree(path), path) if not name.startswith("_")}
        listed = {name for name in _all(path) if not name.startswith("_")}
        if bound != listed:
            unlisted, unbound = sorted(bound - listed), sorted(listed - bound)
            broken[where(path)] = f"not in __all__: {unlisted}; only in __all__: {unbound}"

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


def _bound(node: ast.Module | ast.If, path: Path) -> Iterator[str]:
    for child in node.body:
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=names) if _re_exports(child, path):
                yield from (alias.asname or alias.name for alias in names)
            case ast.If():
                yield from _bound(child, path)


def _re_exports(node: ast.ImportFrom, path: Path) -> bool:
    """Whether a package hands on names of its own rooms, rather than using somebody else's."""
    package = ".".join(("agentkit", *path.parent.relative_to(PACKAGE).parts))
    return path.name == "__init__.py" and f"{node.module}.".startswith(f"{package}.")
