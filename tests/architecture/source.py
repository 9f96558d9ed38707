"""Reading this project's own files, and the exceptions that its rules allow."""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "agentkit"


def modules(folder: Path) -> list[Path]:
    """Every Python file below `folder`, in a stable order."""
    return sorted(folder.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path) -> str:
    """The path as a rule prints it: from the root, with slashes."""
    return path.relative_to(ROOT).as_posix()


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of names, else the empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            prefix = dotted(value)
            return f"{prefix}.{attr}" if prefix else ""
        case _:
            return ""


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a plain dotted name in the file."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and (name := dotted(node.func)):
            yield name, node


def imports(path: Path) -> Iterator[str]:
    """Every module or name that the file imports, as a dotted name."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tracked() -> list[Path]:
    """Every file that is in version control and still on disk."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def hold(broken: Mapping[str, str], *, excused: Mapping[str, str], rule: str) -> None:
    """Fail when something breaks the rule without an excuse, or has an excuse it does not need."""
    lines = [f"{place}: {what}" for place, what in broken.items() if place not in excused]
    lines += [f"{place}: excused, but keeps the rule" for place in excused if place not in broken]
    lines += [f"{place}: excused without a reason" for place, why in excused.items() if not why]

    assert not lines, "\n".join([rule, *lines])
