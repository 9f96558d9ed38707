"""Pages as a reader follows them: code saved or run, commands typed, output compared."""

from __future__ import annotations

import fnmatch
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import agentkit

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[a-z]+): (?P<value>[^ ]+) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block. `note` and `value`: of the comment before it (`file: shop.py`, `exit: 5`)."""

    language: str
    text: str
    note: str
    value: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(
            found["language"],
            found["text"],
            found["note"] or "",
            found["value"] or "",
            text[: found.start()].count("\n") + 1,
        )
        for found in _BLOCK.finditer(text)
    ]


class Reader:
    """Follows a page in a folder of its own.

    Args:
        folder: an empty one.
        environment: for everything that is run, beside the tests' own.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        programs = folder / ".bin"
        programs.mkdir()
        for name, arguments in (("agentkit", " -m agentkit"), ("python", "")):
            command = programs / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
            command.chmod(command.stat().st_mode | stat.S_IXUSR)
        sources = str(Path(agentkit.__file__).parents[1])
        inherited = {name: value for name, value in os.environ.items() if "API_KEY" not in name}
        self._environment = {
            **inherited,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}{os.pathsep}{sources}",
            **environment,
        }

    def follow(self, page: Path) -> int:
        """Do what the page says, block by block; returns how many blocks there were to do."""
        done = 0
        for block in blocks(page):
            place = f"{page.name}, line {block.line}"
            if block.language == "python":
                self._python(block, place)
            elif block.language in {"console", "sh"}:
                self._commands(block, place)
            elif block.note == "file":
                (self.folder / block.value).write_text(block.text)
            else:
                continue
            done += 1
        return done

    def _python(self, block: Block, place: str) -> None:
        name = block.value if block.note == "file" else f"snippet_{block.line}.py"
        (self.folder / name).write_text(block.text)
        done = self._run([sys.executable, name])
        assert 0 == done.returncode, f"{place}: {done.stdout}"

    def _commands(self, block: Block, place: str) -> None:
        for command, expected in _typed(block):
            if command.startswith(("pip ", "scripts/")):
                assert _is_known(command), f"{place}: {command}"
                continue
            done = self._run(["sh", "-c", command])
            output = [_squeezed(line) for line in done.stdout.splitlines()]
            if expected == ["Killed"]:
                assert done.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}, done.stdout
                continue
            code = int(block.value) if block.note == "exit" else 0
            assert code == done.returncode, f"{place}: {command}\n{done.stdout}"
            for line in expected:
                pattern = re.sub(r"([\[\]?*])", r"[\1]", _squeezed(line)).replace("…", "*")
                assert fnmatch.filter(output, pattern), f"{place}: {line!r} in\n{done.stdout}"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )


def _typed(block: Block) -> list[tuple[str, list[str]]]:
    """Commands with the lines that they print; in a `sh` block each line is a command."""
    typed: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if block.language == "sh":
            typed.append((line.partition("  #")[0].strip(), []))
        elif line.startswith("$ "):
            typed.append((line[2:], []))
        elif line:
            typed[-1][1].append(line)
    return [(command, expected) for command, expected in typed if command]


def _squeezed(line: str) -> str:
    """A line without the width of its columns, which follows from the widest cell."""
    return " ".join(line.split())


def _is_known(command: str) -> bool:
    """Whether an installation or a script that is not run here names what exists."""
    if command.startswith("scripts/"):
        return (ROOT / command.split(maxsplit=1)[0]).is_file()
    return re.fullmatch(r'pip install "?arc-agentkit(\[\w+\])?"?', command) is not None
