"""What reaches the terminal: escaped text, plain JSON, and tables where a person looks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from agentkit.core.contracts.types import JSON

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ago",
    "as_dict",
    "at_time",
    "emit_json",
    "escape",
    "one_line",
    "print_table",
    "say",
    "say_styled",
    "shorten",
    "to_plain",
]

_ESCAPED = {
    code: f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if code not in (0x09, 0x0A)
}
# Marks that turn the writing direction can make an approved text read as another one, line and
# paragraph separators can forge a line of our own, and tag characters are read by models alone.
_MARKS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
_ESCAPED |= {code: f"\\u{code:04x}" for code in _MARKS}
_ESCAPED |= {code: f"\\U{code:08x}" for code in range(0xE0000, 0xE0080)}


def escape(text: str) -> str:
    """`text` without raw control sequences: what a model or tool wrote cannot act on a terminal."""
    printable = text.translate(_ESCAPED)
    return printable.encode("utf-8", "backslashreplace").decode()


def shorten(text: str, limit: int = 100) -> str:
    """One escaped line of at most `limit` characters."""
    line = escape(one_line(text))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def one_line(text: str) -> str:
    """`text` with every run of white space made one space."""
    return " ".join(text.split())


def say(text: str, *, error: bool = False) -> None:
    """Print escaped text, to standard error if it is not the answer itself."""
    stream = sys.stderr if error else sys.stdout
    stream.write(escape(text) + "\n")
    stream.flush()


def say_styled(text: str, style: str) -> None:
    """Print escaped text in a style of rich's; plain on a pipe and where `NO_COLOR` is set."""
    from rich.text import Text

    _console().print(Text(escape(text), style=style), soft_wrap=True)


def at_time(at_ms: int) -> str:
    """A moment (ms since the Unix epoch) as people write it, in UTC."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def emit_json(data: object) -> None:
    """Print one JSON document; strings are escaped by JSON itself, all of it ASCII."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=True, allow_nan=False) + "\n")


def as_dict(value: msgspec.Struct) -> dict[str, JSON]:
    """A value's fields by name, for JSON; some are kept as arrays in the journal."""
    return {name: to_plain(getattr(value, name)) for name in value.__struct_fields__}


def to_plain(value: object) -> JSON:
    """Any value of ours as JSON, with fields by name."""
    if isinstance(value, msgspec.Raw):
        return to_plain(msgspec.json.decode(value))
    if isinstance(value, msgspec.Struct):
        return as_dict(value)
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    plain: JSON = msgspec.to_builtins(value)
    return plain


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table whose cells are escaped; without colour where `NO_COLOR` is set."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape(cell)) for cell in row))
    _console().print(table)


def ago(seconds: float) -> str:
    """A duration for people: `5s`, `3m`, `2h`, `4d`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(int(seconds), 0)}s"


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=200)
    return console
