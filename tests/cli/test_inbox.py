"""`approvals`, `approve`, `reject`, `edit`, `answer`, `send` and `unpause`: persons who answer runs
with the store alone, without the agent.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentkit import (
    Agent,
    Checkpointer,
    Invoker,
    ReActCognition,
    RunContext,
    Scope,
    Services,
    ToolCall,
    tool,
)
from agentkit.core.testing import FakeLLM, Turn
from agentkit.state.checkpoints.adapters import SqliteCheckpointStore
from tests.cli.kit import Shell

OFFICE = '''
import pathlib

from agentkit import Agent, ReActCognition, ToolCall, ToolContext, tool
from agentkit.core.testing import FakeLLM, Turn


@tool(side_effecting=True, requires_approval=True)
async def pay(invoice: str, cents: int) -> str:
    """Pay."""
    with pathlib.Path("bank").open("a") as bank:
        bank.write(f"{invoice} {cents}\\n")
    return f"paid {cents}"


@tool(side_effecting=False)
async def colour(context: ToolContext) -> str:
    """Ask."""
    return str(await context.ask("Which colour?", choices=["red", 7]))


def model(messages):
    results = [message.content for message in messages if message.role == "tool"]
    if not results:
        return Turn(tool_calls=(
            ToolCall("a", "pay", {"invoice": "A\\x1b[2J\\u202e" + "-" * 300, "cents": 5}),
            ToolCall("b", "colour", {}),
        ))
    said = [message.content for message in messages if message.role == "user"][1:]
    return Turn(" | ".join([*results, *said]))


office = Agent("office", FakeLLM(model), cognition=ReActCognition([pay, colour]))
'''


@pytest.fixture(scope="module")
def suspended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store where `w1` waits for an approval (q4) and an answer (q6)."""
    shell = Shell(tmp_path_factory.mktemp("suspended"))
    (shell.folder / "desk.py").write_text(OFFICE)
    _waiting(shell, "w1")
    return shell.folder / "runs.db"


@pytest.fixture
def office(shell: Shell, suspended: Path) -> Shell:
    """A folder of one's own with that store and its agent."""
    (shell.folder / "desk.py").write_text(OFFICE)
    shutil.copy(suspended, shell.folder / "runs.db")
    return shell


def _waiting(shell: Shell, run: str, *options: str) -> None:
    done = shell("run", "desk:office", "Pay.", "--run-id", run, *options)
    assert 5 == done.code, done


def _bank(shell: Shell) -> list[str]:
    path = shell.folder / "bank"
    return path.read_text().splitlines() if path.exists() else []


def _decided(shell: Shell, run: str = "w1") -> list[dict[str, Any]]:
    entries = shell("show", run, "--json").json["entries"]
    return [entry for entry in entries if entry["kind"] == "decided"]


def test_f040_the_inbox_shows_the_whole_call_and_nothing_acts_on_the_terminal(
    office: Shell,
) -> None:
    """All arguments, canonical and escaped, the digest, what may be answered and by which command;
    as JSON the same.
    """
    shown = office("approvals")
    listed = office("approvals", "--json").json

    assert (0, "") == (shown.code, shown.err)
    assert "w1 q4: pay is not called without a person's approval." in shown.out
    assert "-" * 300 in shown.out
    assert not {"\x1b", "\u202e"} & set(shown.out)
    assert "answers: approve, reject, edit" in shown.out
    assert 'answers: answer {"enum":["red",7]}' in shown.out
    assert "decide:  agentkit approve w1 q4\n" in shown.out
    assert "decide:  agentkit answer w1 q6\n" in shown.out
    first = listed["questions"][0]
    assert ("w1", "q4", "approval", 2) == (
        first["run"],
        first["id"],
        first["kind"],
        listed["total"],
    )
    assert {"invoice": "A\x1b[2J\u202e" + "-" * 300, "cents": 5} == json.loads(first["arguments"])
    assert first["digest"] in shown.out


def test_f029_decisions_are_written_down_without_the_agent_and_applied_later(
    office: Shell,
) -> None:
    """From the store alone, on a machine that has nothing else: the answers are taken, and `resume`
    without the agent says what is missing and begins nothing anew. With it each is applied once.
    """
    module = office.folder / "desk.py"
    module.rename(office.folder / "elsewhere")
    edited = office("edit", "w1", "q4", '{"invoice": "B", "cents": 4}', "--by", "ann")
    answered = office("answer", "w1", "q6", "red", "--json")
    without = office("resume", "w1")
    (office.folder / "elsewhere").rename(module)
    before = _bank(office)

    done = office("resume", "w1")

    assert "recorded: edit. Still open: q6. A worker goes on with it" in edited.out
    assert (True, []) == (answered.json["recorded"], answered.json["open"])
    assert (2, True) == (without.code, "desk" in without.err), without
    assert [] == before
    assert 0 == done.code, done
    assert done.out.endswith("paid 4 | red\n")
    assert ["B 4"] == _bank(office)
    assert [("edit", "ann"), ("answer", "command line")] == [
        (one["answer"], one["actor"]) for one in _decided(office)
    ]
    assert 0 == office("approvals").code
    assert "nothing waits for anybody" in office("approvals").err


def test_an_answered_run_is_ready_and_nobody_is_said_to_have_died(office: Shell) -> None:
    """Until a worker comes all three commands call it `ready`; a run whose worker died is not."""
    office("approve", "w1", "q4")
    office("answer", "w1", "q6", "red")

    listed = office("runs").out
    ready = office("runs", "--status", "ready", "--json").json
    counts = office("status", "--json").json["runs"]

    assert "it can go on: a worker or agentkit resume takes it up" in listed
    assert "gone" not in listed
    assert ["w1"] == [run["run"] for run in ready]
    assert {"ready": 1} == {name: count for name, count in counts.items() if count}
    assert "ready" == office("show", "w1", "--json").json["status"]


def test_a_run_may_be_stricter_than_its_tools_and_says_who_asked(shell: Shell) -> None:
    """`run --autonomy manual --identity ada`: on record from its start; `submit` has both, too."""
    shell.touch("sent")
    order = ("agents:sender", "Send a.", "--run-id", "r1")

    asked = shell("run", *order, "--autonomy", "manual", "--identity", "ada", "--json")
    start = shell("show", "r1", "--json").json["entries"][0]
    refused = shell("run", *order, "--identity", "a" * 600)

    assert (5, "approval") == (asked.code, asked.json["suspended"]["questions"][0]["kind"])
    assert ("manual", "ada") == (start["autonomy"], start["identity"])
    assert "" == (shell.folder / "sent").read_text()
    assert 2 == refused.code


def test_f042_of_two_who_decide_one_wins_and_the_other_is_told_who(office: Shell) -> None:
    """The same word again changes nothing, another one is refused, also after it was applied."""
    first = office("approve", "w1", "q4", "--by", "ann", "--note", "fine")
    again = office("approve", "w1", "q4", "--by", "bob")
    other = office("reject", "w1", "q4", "--reason", "no", "--json")
    office("answer", "w1", "q6", "--json-value", "7")
    assert 0 == office("resume", "w1").code
    late = office("reject", "w1", "q4")

    assert (0, 0, 4, 4) == (first.code, again.code, other.code, late.code)
    assert "was decided in this way before: approve by ann. Nothing was changed." in again.out
    assert {"question": "q4", "answer": "approve", "actor": "ann"} == other.json["facts"]
    assert "already decided ('approve' by ann)" in late.err
    assert 2 == len(_decided(office))
    assert 1 == len(_bank(office))


REFUSED: list[tuple[int, str, tuple[str, ...]]] = [
    (3, "open questions: q4 (pay: approve, reject, edit)", ("approve", "w1", "q5")),
    (3, "run 'w9' does not exist", ("approve", "w9", "q4")),
    (2, "'approve' is no answer to it; choose one of answer", ("approve", "w1", "q6")),
    (2, "'answer' is no answer to it", ("answer", "w1", "q4", "yes")),
    (2, 'must be one of ["red",7]', ("answer", "w1", "q6", "7")),
    (2, "is not the JSON of a value", ("answer", "w1", "q6", "--json-value", "{")),
    (2, "either a VALUE or --json-value", ("answer", "w1", "q6")),
    (2, "as a JSON object", ("edit", "w1", "q4", "[1]")),
    (2, "names a member twice", ("edit", "w1", "q4", '{"cents": 1, "cents": 2}')),
    (2, "lacks invoice", ("edit", "w1", "q4", '{"cents": 1}')),
    (4, "about other arguments by now", ("approve", "w1", "q4", "--digest", "abcdabcd")),
    (2, "at least the first 8 characters", ("approve", "w1", "q4", "--digest", "abc")),
    (2, "either the NAME of an event or --message", ("send", "w1")),
    (2, "the message is empty", ("send", "w1", "--message", " ")),
    (2, "--user names one scope", ("approvals", "--all-scopes", "--user", "u")),
    (2, "control characters", ("approvals", "--tenant", "\x01")),
]


def test_f022_what_is_refused_says_why_and_records_nothing(office: Shell) -> None:
    """Nothing fails open; the exit code tells a typo, something unknown and a stale look apart."""
    told = [office(*words) for _, _, words in REFUSED]

    assert [code for code, _, _ in REFUSED] == [done.code for done in told]
    assert [] == [
        done for done, (_, why, _) in zip(told, REFUSED, strict=True) if why not in done.err
    ]
    assert not _decided(office)
    assert not _bank(office)


def test_a_run_that_has_ended_or_was_cancelled_takes_no_answer(office: Shell) -> None:
    """Exit code 4, with who cancelled it and why; of a finished one that it has ended."""
    office("cancel", "w1", "--by", "ann", "--why", "ordered twice")
    assert 0 == office("run", "agents:talker", "Talk.", "--run-id", "d1").code

    cancelled = office("approve", "w1", "q4")
    ended = office("approve", "d1", "q4")
    event = office("send", "d1", "payment")
    message = office("send", "w1", "--message", "Wait!")

    assert [4] * 4 == [one.code for one in (cancelled, ended, event, message)]
    assert "was cancelled by ann (ordered twice)" in cancelled.err
    assert "has ended (done); it takes no decision about 'q4' any more" in ended.err


def test_f115_another_scope_is_neither_shown_nor_decided(office: Shell) -> None:
    """Like every command the inbox looks at one scope; who asks for all of them is told whose each
    run is, and the command for it names the tenant.
    """
    _waiting(office, "w2", "--tenant", "acme")

    own, theirs = office("approvals", "--json").json, office("approvals", "--tenant", "acme").out
    every = office("approvals", "--all-scopes", "--json").json
    foreign = office("approve", "w2", "q4")
    mine = office("approve", "w2", "q4", "--tenant", "acme")

    assert {"w1"} == {one["run"] for one in own["questions"]}
    assert "agentkit approve w2 q4 --tenant acme" in theirs
    assert "scope:   tenant acme\n" in theirs
    assert [("w1", ""), ("w2", "acme")] == sorted(
        {(one["run"], one["tenant"]) for one in every["questions"]}
    )
    assert (3, 0) == (foreign.code, mine.code)
    assert 4 == every["total"]
    left = office("approvals", "--all-scopes", "--tenant", "acme", "--json").json["questions"]
    assert ["q6"] == [one["id"] for one in left]


def test_the_run_of_a_user_is_answered_with_their_name(office: Shell) -> None:
    """A scope may have a user beside its tenant."""
    _ask_as(office, Scope("acme", "bob"))

    shown = office("approvals", "--all-scopes", "--tenant", "acme").out
    none = office("approvals", "--tenant", "acme")
    done = office("approve", "u1", "q4", "--tenant", "acme", "--user", "bob")
    sent = office("send", "u1", "x", "--tenant", "acme", "--user", "bob")

    assert "scope:   tenant acme, user bob\n" in shown
    assert "agentkit approve u1 q4 --tenant acme --user bob" in shown
    assert "nothing waits for anybody" in none.err
    assert (0, 0) == (done.code, sent.code)


def test_pages_hold_each_question_once_and_say_how_many_are_left(office: Shell) -> None:
    """`--limit` and `--skip`; the oldest run's first."""
    _waiting(office, "w2")

    first = office("approvals", "--limit", "3")
    pages = [
        office("approvals", "--limit", "3", "--skip", str(skip), "--json").json["questions"]
        for skip in (0, 3)
    ]

    assert "1 more: --skip 3" in first.err
    found = [(one["run"], one["id"]) for page in pages for one in page]
    assert [("w1", "q4"), ("w1", "q6"), ("w2", "q4"), ("w2", "q6")] == found


def test_whichever_worker_comes_next_goes_on_with_what_was_decided(office: Shell) -> None:
    """Nobody resumes by hand: a worker applies both answers, and makes the payment once, however
    often one comes along.
    """
    assert 0 == office("approve", "w1", "q4", "--by", "ann").code
    assert 0 == office("answer", "w1", "q6", "red").code

    for _ in range(2):
        worker = office("worker", "desk:office", "--until-idle")
        assert 0 == worker.code, worker

    [run] = office("runs", "--json").json
    assert ("done", "paid 5 | red") == (run["status"], run["output"])
    assert 1 == len(_bank(office))


def test_a_call_in_doubt_is_in_the_inbox_with_the_command_that_settles_it(shell: Shell) -> None:
    """Its kind has answers of its own."""
    question = shell.suspended()

    shown = shell("approvals").out
    settled = shell("tool", "settle", "r1", question, "--done", "it was sent")

    assert "answers: done, failed, run_again, skip" in shown
    assert f"decide:  agentkit tool settle r1 {question}" in shown
    assert 0 == settled.code


def test_a_paused_run_takes_decisions_and_goes_on_once_it_is_unpaused(office: Shell) -> None:
    """It stays in the inbox; `unpause` lets it go on."""
    office("pause", "w1")
    shown = office("approvals")
    listed = office("runs", "--json").json[0]

    decided = office("approve", "w1", "q4")
    again = office("unpause", "w1", "--by", "ann")
    twice = office("unpause", "w1")

    assert "agentkit approve w1 q4, paused: unpause it too" in shown.out
    assert ["q4", "q6"] == listed["questions"]
    assert listed["why"].startswith("paused: ")
    assert "recorded: approve. The run is paused: agentkit unpause w1" in decided.out
    assert (0, 2) == (again.code, twice.code)
    assert 5 == office("resume", "w1").code
    assert 1 == len(_bank(office))


def test_f032_a_message_is_kept_while_questions_are_open(office: Shell) -> None:
    """It decides nothing, counts once for its id, and is read behind the results of the calls."""
    first = office("send", "w1", "--message", "And hurry.", "--id", "m1", "--by", "ann")
    again = office("send", "w1", "--message", "And hurry.", "--id", "m1", "--json")
    waiting = [one["id"] for one in office("approvals", "--json").json["questions"]]
    office("reject", "w1", "q4", "--reason", "no")
    office("answer", "w1", "q6", "red")

    done = office("resume", "w1")

    assert "recorded; the run is suspended" in first.out
    assert not again.json["recorded"]
    assert ["q4", "q6"] == waiting
    assert done.out.endswith("no | red | And hurry.\n")


def test_an_event_is_given_once_to_who_waits_for_it(office: Shell) -> None:
    """PAYLOAD is JSON where it parses as JSON; the id counts once, for one payload."""
    first = office("send", "w1", "payment", '{"cents": 5}', "--id", "p1")
    again = office("send", "w1", "payment", '{"cents": 5}', "--id", "p1")
    other = office("send", "w1", "payment", '{"cents": 6}', "--id", "p1")
    plain = office("send", "w1", "payment", "by hand", "--json")

    entries = office("show", "w1", "--json").json["entries"]
    payloads = [one["payload"] for one in entries if one["kind"] == "event_received"]
    assert (0, 0, 4, True) == (first.code, again.code, other.code, plain.json["recorded"])
    assert "known by its id already" in again.out
    assert ['{"cents":5}', '"by hand"'] == payloads


@pytest.mark.slow
def test_a_decision_whose_command_is_killed_is_recorded_or_not(office: Shell) -> None:
    """SIGKILL before or behind the write, then the same command again: one decision."""
    kills = office.killed_at_each("approve", "w1", "q4", "--by", "ann")

    found = [len(_decided(office)) for _ in kills]

    assert [0, 1] == found
    assert ["approve"] == [one["answer"] for one in _decided(office)]


def test_runs_marks_those_of_which_the_result_alone_is_left(shell: Shell) -> None:
    """In the list for people and as JSON."""
    assert 0 == shell("run", "agents:talker", "Talk.", "--run-id", "d1").code
    fresh = shell("runs", "--json").json[0]
    shell("gc", "--older-than", "0s")

    shown, listed = shell("runs"), shell("runs", "--json").json[0]

    assert (False, True) == (fresh["tombstone"], listed["tombstone"])
    assert ("done", "hello") == (listed["status"], listed["output"])
    assert "its entries are gone, its result is kept" in shown.out


def test_a_conversation_is_carried_on_from_the_command_line(shell: Shell) -> None:
    """`--after`: the new run tells of its past, and the same command again gives its result."""
    assert 0 == shell("run", "agents:looker", "Look at a.", "--run-id", "r1").code
    start = ("run", "agents:looker", "Again.", "--run-id", "r2", "--after", "r1")

    done, again = shell(*start), shell(*start)
    shown = shell("show", "r2")
    listed = {run["run"]: run for run in shell("runs", "--json").json}

    assert (0, 0, done.out) == (done.code, again.code, again.out)
    assert "after   r1, where 2 answers and 30 tokens had been paid" in shown.out
    assert "after   r1 ended: Again." in shown.out
    assert "task    Again." in shown.out
    told = [listed["r2"][name] for name in ("after", "forked_from", "task")]
    assert ["r1", None, "Again."] == told
    assert "r1" == shell("show", "r2", "--json").json["after"]


def test_a_past_that_cannot_be_carried_on_has_an_exit_code(office: Shell) -> None:
    """Unknown 3, the run itself 2, one that waits 5 with its questions, another past 4."""
    assert 0 == office("run", "agents:talker", "Talk.", "--run-id", "d1").code
    start = ("run", "desk:office", "More.", "--run-id")

    unknown, itself = office(*start, "r2", "--after", "r9"), office(*start, "r2", "--after", "r2")
    waits = office(*start, "r2", "--after", "w1", "--json")
    other = office("run", "agents:talker", "Talk.", "--run-id", "d1", "--after", "w1")

    assert (3, 2, 5, 4) == (unknown.code, itself.code, waits.code, other.code)
    assert "RunUnfinished" == waits.json["error"]
    assert ["q4", "q6"] == [one["id"] for one in waits.json["facts"]["questions"]]
    assert {"w1", "d1"} == {run["run"] for run in office("runs", "--json").json}


def _ask_as(shell: Shell, scope: Scope) -> None:
    """A run `u1` in that scope, made by a program: it waits for what `w1` waits for."""

    async def ask() -> None:
        store = SqliteCheckpointStore(shell.folder / "runs.db")
        asked = ToolCall("a", "pay", {"invoice": "A", "cents": 5})
        context = RunContext(
            correlation_id="u1",
            scope=scope,
            services=Services(
                invoker=Invoker(FakeLLM.script([Turn(tool_calls=(asked,))])),
                checkpointer=Checkpointer(port=store),
            ),
        )

        @tool(side_effecting=True, requires_approval=True)
        async def pay(invoice: str, cents: int) -> str:
            """Pay."""
            raise AssertionError(invoice, cents)

        result = await Agent("office", cognition=ReActCognition([pay])).run("Pay.", context)
        assert result.suspended is not None
        await store.aclose()

    asyncio.run(ask())
