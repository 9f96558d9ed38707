"""The command tree. Each command's work is in a file of its own and loaded when it is called."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Unpack

import click

from agentkit.cli.accepting import COMMANDS as ACCEPTING
from agentkit.cli.dispatching import COMMANDS as DISPATCHING
from agentkit.cli.exits import EXIT_CODES, FAILED
from agentkit.cli.inbox import COMMANDS as INBOX
from agentkit.cli.keeping import COMMANDS
from agentkit.cli.options import (
    AUTONOMY,
    GRACE,
    IDENTITY,
    IN_SCOPE,
    JSON_OUT,
    STORE,
    WAIT,
    example,
)
from agentkit.cli.statuses import STATUSES
from agentkit.cli.stopping import COMMANDS as STOPPING

if TYPE_CHECKING:
    from agentkit.cli.crashtest import CrashOrder
    from agentkit.cli.settling import SettleOrder
    from agentkit.core.contracts.types import Scope
    from agentkit.core.runtime.context import Autonomy

__all__ = [
    "cli",
    "crashtest",
    "demo",
    "doctor",
    "fork",
    "main",
    "resume",
    "run",
    "runs",
    "settle",
    "show",
    "status",
    "tool",
    "unpark",
]


def main() -> None:
    """Run the command line; what click itself refuses is JSON too where JSON was asked for."""
    try:
        if "--json" not in sys.argv:
            cli.main(prog_name="agentkit")
        sys.exit(cli.main(prog_name="agentkit", standalone_mode=False))
    except click.UsageError as error:
        from agentkit.cli.output import emit_json

        message = error.format_message()
        emit_json({"error": "UsageError", "message": message, "run": None, "facts": {}})
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write(f"Error: the output cannot be written ({error.strerror}).\n")
        sys.exit(FAILED)


@click.group(
    epilog=example(
        'agentkit run shop:agent "Order 20 bulbs" --run-id t1',
        "agentkit resume t1",
        "agentkit show t1",
    )
    + f"\n\n\b\n{EXIT_CODES}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="arc-agentkit", prog_name="agentkit")
def cli() -> None:
    """Agents whose runs outlive their process."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@cli.command(epilog=example('agentkit run shop.agents:buyer "Order 20 bulbs" --run-id order-17'))
@click.argument("reference", metavar="MODULE:AGENT")
@click.argument("task")
@click.option("--run-id", help="The run's id; a random one is made and shown otherwise.")
@click.option("--after", metavar="RUN", help="Carry on the conversation of this run, which ended.")
@click.option("--model", metavar="PROVIDER:MODEL", help="Use this model, e.g. openai:gpt-5.1.")
@IDENTITY
@AUTONOMY
@IN_SCOPE
@STORE
@WAIT
@GRACE
@JSON_OUT
def run(
    *,
    reference: str,
    task: str,
    run_id: str | None,
    after: str | None,
    model: str | None,
    identity: str,
    autonomy: Autonomy,
    scope: Scope,
    store: str | None,
    wait_seconds: float,
    grace_seconds: float,
    as_json: bool,
) -> None:
    """Start the run, or carry it on where its last worker stopped."""
    from agentkit.cli.driving import Order, drive

    order = Order(
        reference,
        task,
        run_id,
        after=after,
        model=model,
        identity=identity,
        autonomy=autonomy,
        scope=scope,
        wait_seconds=wait_seconds,
        grace_seconds=grace_seconds,
    )
    drive(order, store_url=store, as_json=as_json)


@cli.command(epilog=example("agentkit resume order-17 --answer q9=skip"))
@click.argument("run_id", metavar="RUN")
@click.option("--agent", "reference", metavar="MODULE:AGENT", help="The agent that carries it on.")
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="QUESTION=ANSWER",
    help="Decide an open question: q7=run_again, q7=skip, 'q7=done:{\"id\": 1}', 'q7=failed:why'.",
)
@click.option("--model", metavar="PROVIDER:MODEL", help="Use this model, e.g. openai:gpt-5.1.")
@IN_SCOPE
@STORE
@WAIT
@GRACE
@JSON_OUT
def resume(
    *,
    run_id: str,
    reference: str | None,
    answers: tuple[str, ...],
    model: str | None,
    scope: Scope,
    store: str | None,
    wait_seconds: float,
    grace_seconds: float,
    as_json: bool,
) -> None:
    """Carry a run on: interrupted, suspended or parked."""
    from agentkit.cli.driving import Order, drive

    order = Order(
        reference,
        None,
        run_id,
        answers=answers,
        model=model,
        scope=scope,
        wait_seconds=wait_seconds,
        grace_seconds=grace_seconds,
    )
    drive(order, store_url=store, as_json=as_json)


@cli.command(epilog=example("agentkit runs --status suspended"))
@click.option("--status", type=click.Choice(STATUSES), help="Only runs of this status.")
@click.option("--agent", help="Only runs of this agent.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="At most so many, up to 1000.",
)
@IN_SCOPE
@STORE
@JSON_OUT
def runs(
    *,
    status: str | None,
    agent: str | None,
    limit: int,
    scope: Scope,
    store: str | None,
    as_json: bool,
) -> None:
    """List runs, the newest first, and why each waits."""
    from agentkit.cli.looking import list_runs

    list_runs(store, status=status, agent=agent, limit=limit, scope=scope, as_json=as_json)


@cli.command(epilog=example("agentkit show order-17"))
@click.argument("run_id", metavar="RUN")
@IN_SCOPE
@STORE
@JSON_OUT
def show(*, run_id: str, scope: Scope, store: str | None, as_json: bool) -> None:
    """Show a run's timeline: steps, tools, answers, crashes and takeovers, calls in doubt."""
    from agentkit.cli.looking import show_run

    show_run(store, run_id, scope=scope, as_json=as_json)


@cli.command(epilog=example("agentkit fork order-17 --from 2 --message 'Take the cheaper one.'"))
@click.argument("run_id", metavar="RUN")
@click.option(
    "--from",
    "version",
    required=True,
    metavar="VERSION",
    help="Where the new run goes on, see agentkit show; or latest.",
)
@click.option("--as", "new_run_id", metavar="ID", help="The new run's id; a random one otherwise.")
@click.option(
    "--edit",
    "edits",
    multiple=True,
    metavar="TURN.CALL=TEXT",
    help="What the model sees as a call's result, of the last turn before VERSION.",
)
@click.option("--message", metavar="TEXT", help="What the user adds after that turn.")
@IN_SCOPE
@STORE
@JSON_OUT
def fork(
    *,
    run_id: str,
    version: str,
    new_run_id: str | None,
    edits: tuple[str, ...],
    message: str | None,
    scope: Scope,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a new run from what a run had recorded up to a version. Nothing is run or repeated.

    The new run's id is printed; agentkit resume carries it on.
    """
    from agentkit.cli.forking import ForkOrder, fork_run

    order = ForkOrder(run_id, version, new_run_id, edits=edits, message=message, scope=scope)
    fork_run(order, store_url=store, as_json=as_json)


@cli.command(epilog=example("agentkit status --json"))
@IN_SCOPE
@STORE
@JSON_OUT
def status(*, scope: Scope, store: str | None, as_json: bool) -> None:
    """Count runs by status, for a probe."""
    from agentkit.cli.looking import count_runs

    count_runs(store, scope=scope, as_json=as_json)


@cli.command(epilog=example("agentkit unpark order-17 --why 'the quota was raised'"))
@click.argument("run_id", metavar="RUN")
@click.option("--by", default="", help="Who says so, for the record.")
@click.option("--why", default="", help="What was mended, for the record.")
@IN_SCOPE
@STORE
@JSON_OUT
def unpark(
    *, run_id: str, by: str, why: str, scope: Scope, store: str | None, as_json: bool
) -> None:
    """Let a parked run go on: what stopped it was mended. Nothing is run by this."""
    from agentkit.cli.settling import unpark_run

    unpark_run(store, run_id, by=by, why=why, scope=scope, as_json=as_json)


@cli.group(epilog=example("agentkit tool settle order-17 2.0 --done '{\"id\": 4711}' --by ann"))
def tool() -> None:
    """Say what became of a tool's call."""


@tool.command(epilog=example("agentkit tool settle order-17 2.0 --done '{\"id\": 4711}' --by ann"))
@click.argument("run_id", metavar="RUN")
@click.argument("call", metavar="CALL")
@click.option("--done", metavar="VALUE", help="It took effect; what the tool returned.")
@click.option("--failed", metavar="TEXT", help="It had no effect, or failed; why.")
@click.option("--run-again", is_flag=True, help="Have it made again.")
@click.option("--skip", is_flag=True, help="Do not make it again, and tell the model so.")
@click.option("--by", default="", help="Who says so, for the record.")
@click.option("--why", default="", help="Why, for the record; told to the model with --skip.")
@IN_SCOPE
@STORE
@JSON_OUT
def settle(*, store: str | None, as_json: bool, **order: Unpack[SettleOrder]) -> None:
    """Settle a call that may or may not have happened. Nothing is run by this.

    CALL is TURN.INDEX as `agentkit show` prints it, the id of an open question, or the provider's
    label of the call.
    """
    from agentkit.cli import settling

    settling.settle(order, store_url=store, as_json=as_json)


@cli.command(epilog=example("agentkit doctor --store sqlite:///runs.db"))
@click.option("--repair", is_flag=True, help="On Redis, make the lists of runs anew first.")
@STORE
@JSON_OUT
def doctor(*, repair: bool, store: str | None, as_json: bool) -> None:
    """Check this installation and its store. Nothing is changed without --repair."""
    from agentkit.cli.doctor import examine

    examine(store, repair=repair, as_json=as_json)


@cli.command(epilog=example("agentkit demo"))
@click.option("--model", metavar="PROVIDER:MODEL", help="Use this real model; costs a few cents.")
@click.option("--keep", metavar="FOLDER", help="Keep the run's files in this new folder.")
@JSON_OUT
def demo(*, model: str | None, keep: str | None, as_json: bool) -> None:
    """Kill an agent's workers in the middle of everything, and show what is left. Needs no key.

    Exits with 1 where an invariant is broken.
    """
    from agentkit.cli.demo import run_demo

    run_demo(model, keep=keep, as_json=as_json)


@cli.command(epilog=example("agentkit crashtest shop.agents:buyer --model script.json"))
@click.argument("reference", metavar="MODULE:AGENT")
@click.argument("task", required=False)
@click.option("--model", "script", metavar="FILE", help="Answer as this JSON script says.")
@click.option("--record", metavar="RUN", help="Answer as the model did in this recorded run.")
@STORE
@IN_SCOPE
@click.option("--reset", metavar="MODULE:FUNCTION", help="Called before each run: undo effects.")
@click.option("--tool", default="", metavar="NAME", help="Kill only while this tool is in flight.")
@click.option(
    "--only-border",
    "borders",
    multiple=True,
    metavar="NAME",
    help="Kill only there: append, append:before, model, tool:after, …",
)
@click.option("--kills-per-border", type=click.IntRange(0), default=0, help="At most; 0 for all.")
@click.option("--max-kills", type=click.IntRange(1), default=500, show_default=True, help="In all.")
@click.option("--pairs", is_flag=True, help="Kill the worker that recovers, too.")
@click.option("--seed", type=int, default=0, help="Which kills, where not all are tried.")
@click.option("--at", default="", metavar="PLACE[,PLACE]", help="Only this kill: append:after@2.")
@click.option(
    "--answer",
    type=click.Choice(("run_again", "skip", "failed")),
    default="run_again",
    show_default=True,
    help="Of a question about a call of which nobody saw the end.",
)
@click.option("--varies", multiple=True, metavar="NAME", help="A tool whose results may differ.")
@click.option(
    "--timeout",
    "timeout_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="How long one worker may take.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="At once.")
@click.option("--keep", default="", metavar="FOLDER", help="Keep all journals in this new folder.")
@JSON_OUT
def crashtest(*, as_json: bool, **order: Unpack[CrashOrder]) -> None:
    """Kill your agent's workers with SIGKILL at every border of a run; tell what its tools did.

    The model is played by a script, by a recorded run, or by the agent's own FakeLLM. Exits with 0
    where every tool is safe or asks as it should, 1 where one was doubled, lost or diverged.
    """
    from agentkit.cli.crashtest import crash

    crash(order, as_json=as_json)


for command in (*COMMANDS, *INBOX, *STOPPING, *DISPATCHING, *ACCEPTING):
    cli.add_command(command)
