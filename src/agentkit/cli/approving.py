"""The inbox: what waits for a person over all runs, and the decision about one question."""

from __future__ import annotations

import json
from collections.abc import Iterator
from shlex import join
from typing import NamedTuple, NoReturn, TypedDict

from agentkit.agents.deciding import Recorded, record_decisions
from agentkit.agents.inbox import Inbox, OpenQuestion, open_questions
from agentkit.cli.exits import FAILED, OK
from agentkit.cli.output import as_dict, emit_json, one_line, say
from agentkit.cli.questions import asked_lines
from agentkit.cli.session import leave_with, resume_command, run_command
from agentkit.cli.settling import checked_scope
from agentkit.core.contracts.errors import AgentkitError, InvalidDecision
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import JSON, Decision, Scope

__all__ = [
    "Given",
    "Page",
    "Said",
    "decide",
    "list_questions",
]

_COMMANDS = {"approval": ("approve",), "input": ("answer",), "in_doubt": ("tool", "settle")}
"""What begins the command that decides a question of this kind."""


class Given(TypedDict):
    """Options of every decision. `digest` is empty for any question."""

    by: str
    digest: str
    scope: Scope
    store: str | None
    as_json: bool


class Said(NamedTuple):
    """What a person says.

    Args:
        word: what stands for it in a decision.
        text: its value as a text, or
        json: as JSON text.
        why: for the record; told to the model with `reject`.
    """

    word: str
    text: str | None = None
    json: str | None = None
    why: str = ""


class Page(NamedTuple):
    """Which questions are listed. `tenant` is `None` where none was named."""

    all_scopes: bool
    tenant: str | None
    user: str
    limit: int
    skip: int


def list_questions(store_url: str | None, page: Page, *, as_json: bool) -> NoReturn:
    """List open questions and leave; with `FAILED` where a run that may ask cannot be read."""
    scope = Scope(page.tenant or "", page.user)
    try:
        scope.key  # noqa: B018 - an unusable one raises before anything is opened
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        inbox = await open_questions(
            store.scoped(scope), every_scope=page.all_scopes, tenant=page.tenant
        )
        if not page.all_scopes:
            own = [one._replace(scope=scope.key) for one in inbox.questions]
            inbox = inbox._replace(questions=own)
        shown = inbox.questions[page.skip : page.skip + page.limit]
        if as_json:
            emit_json(_document(inbox, shown, page))
        else:
            for line in _lines(shown, store_url):
                say(line)
            _say_rest(inbox, page, len(shown))
        return FAILED if inbox.unreadable else OK

    run_command(store_url, work, as_json=as_json)


def decide(run_id: str, question: str, said: Said, given: Given) -> NoReturn:
    """Write the decision down, say what that came to, and leave."""
    as_json = given["as_json"]
    scope = checked_scope(run_id, given["scope"], as_json=as_json)
    try:
        decision = _decision(said, given["by"])
    except AgentkitError as error:
        leave_with(error, as_json=as_json)

    async def work(store: JournalPort) -> int:
        recorded = await record_decisions(
            store.scoped(scope), run_id, {question: decision}, digest=given["digest"]
        )
        if as_json:
            emit_json(_outcome(question, decision, recorded))
        else:
            say(_told(question, decision, recorded, given))
        return OK

    run_command(given["store"], work, as_json=as_json)


def _decision(said: Said, by: str) -> Decision:
    """What was said, as a decision.

    Raises:
        InvalidDecision: JSON was meant, and it is none, or names a member twice, so that what was
            read before deciding is not what would be used.
    """
    value: JSON = said.text
    if said.json is not None:
        try:
            value = json.loads(said.json, object_pairs_hook=_once_each)
        except (ValueError, RecursionError) as error:
            raise InvalidDecision(
                f"{said.json[:80]!r} is not the JSON of a value: {error}"
            ) from error
    return Decision(said.word, value, by or "command line", said.why)


def _once_each(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a member twice")
    return found


def _document(inbox: Inbox, shown: list[OpenQuestion], page: Page) -> dict[str, JSON]:
    return {
        "questions": [_as_json(one) for one in shown],
        "total": len(inbox.questions),
        "skip": page.skip,
        "limit": page.limit,
        "unreadable": [
            {"run": one.run, "scope": one.scope, "message": str(one.error)}
            for one in inbox.unreadable
        ],
    }


def _as_json(one: OpenQuestion) -> dict[str, JSON]:
    scope = Scope.of_key(one.scope)
    place: dict[str, JSON] = {
        "run": one.run,
        "tenant": scope.tenant,
        "user": scope.user,
        "agent": one.agent,
        "status": one.status,
    }
    return {**place, **as_dict(one.question)}


def _lines(shown: list[OpenQuestion], store_url: str | None) -> Iterator[str]:
    for one in shown:
        asked, scope = one.question, Scope.of_key(one.scope)
        yield from asked_lines(asked, title=f"{one_line(one.run)} {asked.id}")
        if one.scope:
            user = f", user {scope.user}" if scope.user else ""
            yield f"  scope:   tenant {scope.tenant or '(none)'}{user}"
        where = " / ".join(one_line(part) for part in asked.path[1:])
        yield f"  place:   agent {one_line(one.agent)}, {where}; digest {asked.digest}"
        paused = ", paused: unpause it too" if one.status == "parked" else ""
        yield f"  decide:  {_command(one, scope, store_url)}{paused}"
        yield ""


def _command(one: OpenQuestion, scope: Scope, store_url: str | None) -> str:
    words = [*_COMMANDS.get(one.question.kind, ("answer",)), one.run, one.question.id]
    given = {"--store": store_url, "--tenant": scope.tenant, "--user": scope.user}
    options = [word for option, value in given.items() if value for word in (option, value)]
    return join(["agentkit", *words, *options])


def _say_rest(inbox: Inbox, page: Page, shown: int) -> None:
    """What is not an answer goes to standard error."""
    left = len(inbox.questions) - page.skip - shown
    if not inbox.questions:
        say("nothing waits for anybody", error=True)
    elif left > 0:
        say(f"{left} more: --skip {page.skip + shown}", error=True)
    for one in inbox.unreadable:
        say(f"Error: run {one.run!r} may ask something: {one_line(str(one.error))}", error=True)


def _outcome(question: str, decision: Decision, recorded: Recorded) -> dict[str, JSON]:
    state = recorded.state
    return {
        "run": state.run_id,
        "question": question,
        "answer": decision.answer,
        "recorded": not recorded.repeated,
        "open": [one.id for one in state.questions],
        "status": state.status,
        "seq": state.seq,
    }


def _told(question: str, decision: Decision, recorded: Recorded, given: Given) -> str:
    state, answer = recorded.state, decision.answer
    if recorded.repeated:
        by = state.decided[recorded.repeated[0]].actor or "somebody"
        return f"{question} was decided in this way before: {answer} by {by}. Nothing was changed."
    if state.paused:
        return f"recorded: {answer}. The run is paused: agentkit unpause {state.run_id}"
    left = ", ".join(one.id for one in state.questions)
    still = f" Still open: {left}." if left else ""
    resume = resume_command(state.run_id, store_url=given["store"], scope=given["scope"])
    return f"recorded: {answer}.{still} A worker goes on with it, or: {resume}"
