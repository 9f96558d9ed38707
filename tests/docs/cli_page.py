"""Writes `docs/reference/cli.md` from the command line itself: `python -m tests.docs.cli_page`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from agentkit.cli.app import cli
from agentkit.cli.exits import EXIT_CODES
from tests.docs.snippets import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"

HEAD = """\
# Command line

Written from `agentkit --help` by `python -m tests.docs.cli_page`; a test compares the two.

- The store is `--store`, else `AGENTKIT_STORE_URL`, else `sqlite:///agentkit.db`. `run` makes a
  store that is not there yet, and so do `submit`, `worker`, `import`, `migrate` and the destination
  of `copy`; `doctor` notes it, and every other command leaves with 6.
- With `--json` standard output is one JSON document, errors included: `error`, `message`, `run` and
  `facts`. Without it the answer alone goes to standard output; where the run stops before its end,
  that is what the model said last, and the exit code tells. What happens on the way, and what an
  agent's module and tools print, goes to standard error.
- What models, tools and users wrote is escaped: no control sequence and no mark that turns the
  writing direction reaches the terminal, and what cannot be seen is shown as `\\u200b`: joiners,
  fillers, variation selectors, blanks other than the space. `NO_COLOR` is honoured.
- SIGINT and SIGTERM end a worker in order: what is under way has `--grace` seconds to end, its
  lease is released, the run is resumable at once, and the exit code is 130. The second signal
  stops it, the third does what it does by default. A tool that does not let go ends with the
  process, which names it. `worker` leaves with 0 after SIGTERM.
- `worker` tells what happens on standard error, a line for each event; with `--json` on standard
  output, a document on each line.
- `resume` imports the agent that the run was started with only from the current folder; name any
  other with `--agent`, and that of a run which Python started too. It uses the prompt, tools and
  model that were recorded, and warns where the agent has changed since.
- `runs`, `status` and `show` call a run that nobody works on `ready` where it was answered,
  unparked, forked or given back by a worker that was told to stop, or its time has come. It is
  `interrupted` where its worker died. Either is taken up by `resume` or by any worker.
- `resume` carries a parked run on at once, unless somebody has paused it, and asks on where it is
  suspended; `unpark`, `approve` and its likes, `send` and `tool settle` only write down what
  somebody says, so that any worker can go on later. They need the store and not the agent.
  `resume --answer` answers a question that was asked; `tool settle` settles also a call that nobody
  has asked about yet.
"""


def page() -> str:
    """The whole page."""
    codes = EXIT_CODES.removeprefix("Exit codes: ").rstrip(".").replace("\n", " ")
    parts = [HEAD, "\n## Exit codes\n\n| code | meaning |\n|---|---|\n"]
    for code in codes.split(" · "):
        number, _, meaning = code.partition(" ")
        parts.append(f"| {number} | {meaning} |\n")
    for name, command in commands(cli):
        parts.append(f"\n## `agentkit {name}`\n\n{''.join(_command(command))}")
    return "".join(parts)


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """What can be called, by the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _command(command: click.Command) -> Iterator[str]:
    example = (command.epilog or "").partition("Example:")[2]
    yield inspect.cleandoc(command.help or "") + "\n\n```sh\n"
    yield "".join(f"{line.strip()}\n" for line in example.strip().splitlines())
    yield "```\n\n| argument or option | default | |\n|---|---|---|\n"
    for parameter in command.params:
        yield _parameter(parameter)


def _parameter(parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Option):
        needed = "required" if parameter.required else "optional"
        return f"| `{parameter.make_metavar(click.Context(cli))}` | {needed} | |\n"
    context = click.Context(cli)
    names = ", ".join(parameter.opts)
    value = "" if parameter.is_flag else f" {parameter.make_metavar(context)}".replace("|", "\\|")
    shown = parameter.default if parameter.show_default else ""
    text = (parameter.help or "").replace("|", "\\|")
    return f"| `{names}{value}` | {shown} | {text} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
