"""What reaches the terminal: escaped text, plain JSON, and tables where a person looks."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
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

_SUSPECT = re.compile(r"[^\t\n\x20-\x7e]")
# What is seen as nothing, as a blank that is none, or not as itself: controls, marks that turn the
# writing direction, tag characters, line and paragraph separators, blanks of other widths, private
# and unassigned code points. With them two texts look alike, or one of them forges a line of ours.
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Those that other categories hide: the rest of Unicode's Default_Ignorable_Code_Point, and the
# empty Braille cell.
_IGNORABLE = frozenset(
    (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xE0100, 0xE01F0),
    )
)
_WHITE = re.compile(r"[ \t\n\r\f\v]+")


def escape(text: str) -> str:
    """`text` as it can be seen: nothing in it acts on a terminal, and no two texts look alike for
    characters that are shown as nothing or as a blank. Tabs and line feeds stay.
    """
    return _SUSPECT.sub(_as_seen, text)


def shorten(text: str, limit: int = 100) -> str:
    """One escaped line of at most `limit` characters."""
    line = escape(one_line(text))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def one_line(text: str) -> str:
    """`text` with every run of ASCII white space made one space; other blanks are left for `escape`
    to show.
    """
    return _WHITE.sub(" ", text).strip(" ")


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


def _as_seen(found: re.Match[str]) -> str:
    """A character itself, or its escape where it would not be seen."""
    seen = unicodedata.category(found[0]) not in _UNSEEN and ord(found[0]) not in _IGNORABLE
    return found[0] if seen else found[0].encode("unicode_escape").decode()


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=200)
    return console
