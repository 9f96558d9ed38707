"""`runs`, `show`, `status` and `doctor`: what they tell, whole or damaged."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.cli.kit import Shell, hear

STRANGE = """
import math
from agents import *
from agentkit.tools import ToolContext

@tool(side_effecting=False)
async def measure(number: int, context: ToolContext) -> dict:
    \"\"\"Measure.\"\"\"
    await context.record("first", lambda: {"w": math.inf, "b": b"\\x00\\xff"})
    return {"v": math.nan, "w": -math.inf, "b": b"\\xff\\xfe", "n": 2**64, "m": number,
            "z": "a\\x00b"}

def ask(messages):
    if not any(message.role == "assistant" for message in messages):
        return Turn(tool_calls=(ToolCall("c", "measure", {"number": 2**63 + 1}),))
    return Turn(messages[-1].content)

agent = Agent("strange", FakeLLM(ask), cognition=ReActCognition([measure]))
"""


def _strictly(text: str) -> Any:
    """JSON as a browser reads it: no bare NaN or Infinity."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_runs_lists_the_newest_first_with_why_each_waits(shell: Shell) -> None:
    """Status, agent, age, steps, tokens and the reason, as a table and as JSON."""
    question = shell.suspended("asked")
    shell("run", "agents:looker", "Look at a.", "--run-id", "done")

    table = shell("runs")
    listed = shell("runs", "--json").json

    assert (0, 0) == (table.code, shell("runs").code)
    assert ["done", "asked"] == [line.split()[0] for line in table.out.splitlines()[1:]]
    assert f"{question}: in_doubt send" in table.out
    assert [("done", "done", 1, "looker"), ("asked", "suspended", 0, "sender")] == [
        (run["run"], run["status"], run["steps"], run["agent"]) for run in listed
    ]
    assert "It is value of a" == listed[0]["output"]
    assert [question] == listed[1]["questions"]
    only = shell("runs", "--json", "--status", "suspended", "--agent", "sender", "--limit", "1")
    assert ["asked"] == [run["run"] for run in only.json]
    counts = shell("status", "--json").json
    assert (2, 1, 1) == (counts["total"], counts["runs"]["done"], counts["runs"]["suspended"])


def test_show_tells_the_whole_story(shell: Shell) -> None:
    """Answers, tools, the crash, the takeover, the question, the decision and the end, in order."""
    question = shell.suspended()
    shell("resume", "r1", "--answer", f"{question}=done:sent a")

    told = shell("show", "r1").out

    story = [
        "model   I send. → send",
        "send starts",
        "CRASH   its worker was gone",
        f"asked   {question} in_doubt: send",
        f'decided {question}: done "sent a" by command line',
        "ok by command line: sent a",
        "model   Done: sent a",
        "end     completed: Done: sent a",
    ]
    places = [told.index(line) for line in story]
    assert sorted(places) == places


def test_show_says_which_calls_are_in_doubt_and_why(shell: Shell) -> None:
    """Before anybody was asked, and in the question that is asked then."""
    hold = shell.touch("hold-send")
    worker = shell.start("run", "agents:sender", "Send a.", "--run-id", "r1")
    hear(worker, "sending")
    at_work = shell("show", "r1", "--json").json
    worker.kill()
    worker.communicate()
    hold.unlink()

    left = shell("show", "r1")
    [found] = shell("show", "r1", "--json").json["in_doubt"]
    shell("resume", "r1")
    asked = shell("show", "r1")

    why = "its worker ended before the outcome was recorded"
    assert f"in doubt 1.0: send may or may not have taken effect: {why}" in left.out
    assert "agentkit tool settle r1 1.0, or resume the run" in left.out
    assert ("1.0", "send", 1, why) == tuple(found.values())
    assert "send was started (attempt 1) and its worker died or lost its lease" in asked.out
    assert "in doubt 1.0" not in asked.out
    assert [] == at_work["in_doubt"]


def test_show_prints_entries_with_their_fields_by_name(shell: Shell) -> None:
    """One object per entry: seq without gaps, kind, and the facts."""
    shell("run", "agents:looker", "Look at a.", "--run-id", "r1")

    entries = shell("show", "r1", "--json").json["entries"]

    assert list(range(1, len(entries) + 1)) == [entry["seq"] for entry in entries]
    assert "run_started" == entries[0]["kind"]
    assert "Look at a." == entries[0]["task"]
    assert "agents:looker" == entries[0]["reference"]
    answer = next(entry for entry in entries if entry["kind"] == "model_answered")
    assert {"id": "c1", "name": "look", "arguments": '{"item": "a"}'} == answer["calls"][0]
    assert 1 == answer["usage"]["requests"]


def test_f083_f084_f087_strange_values_come_out_as_valid_json(shell: Shell) -> None:
    """F083, F084, F087: NaN, infinities, bytes, NUL and integers beyond 64 bits pass tool, journal,
    result and `show --json`; a browser could read it, and no digit is lost.
    """
    (shell.folder / "strange.py").write_text(STRANGE)

    ran = shell("run", "strange:agent", "Measure.", "--run-id", "r1", "--json")
    shown = shell("show", "r1", "--json")

    assert (0, 0) == (ran.code, shown.code), ran
    output = _strictly(_strictly(ran.out)["output"])
    assert (2**64, 2**63 + 1, "a\x00b") == (output["n"], output["m"], output["z"])
    entries = _strictly(shown.out)["entries"]
    content = next(e["content"] for e in entries if e["kind"] == "tool_finished")
    assert output == _strictly(content)
    recorded = next(e["value"] for e in entries if e["kind"] == "value_recorded")
    assert {"w", "b"} == set(_strictly(recorded))
    assert 0 == shell("show", "r1").code


def _edit(statement: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)

    return edit


def _content(path: Path) -> list[str]:
    """All that the file says; which part of it still lies in the log is nobody's business."""
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


@pytest.mark.parametrize(
    ("edit", "seq"),
    [
        (_edit("UPDATE agentkit_entry SET body = body || ' ' WHERE (place & 4294967295) = 4"), 4),
        (_edit("UPDATE agentkit_entry SET chained = x'00' WHERE (place & 4294967295) = 5"), 5),
        (_edit("DELETE FROM agentkit_entry WHERE (place & 4294967295) = 3"), 3),
    ],
    ids=["changed", "checksum", "missing"],
)
def test_f078_a_damaged_journal_is_shown_up_to_the_damage(
    shell: Shell, edit: Callable[[Path], None], seq: int
) -> None:
    """F078: `show` prints the good part, names the position and leaves with 1; `resume` refuses
    without writing.
    """
    shell("run", "agents:looker", "Look at a.", "--run-id", "r1")
    store = shell.folder / "runs.db"
    edit(store)
    before = _content(store)

    text = shell("show", "r1")
    document = shell("show", "r1", "--json")
    resumed = shell("resume", "r1")

    assert (1, 1, 1) == (text.code, document.code, resumed.code)
    assert "status  damaged" in text.out
    assert "start" in text.out
    assert f"entry {seq} " in text.err
    assert ("damaged", "JournalDamaged") == (document.json["status"], document.json["error"])
    assert list(range(1, seq)) == [entry["seq"] for entry in document.json["entries"]]
    assert f"entry {seq} " in resumed.err
    assert before == _content(store)


def test_f078_a_journal_without_its_last_entry_is_damaged(shell: Shell) -> None:
    """F078: the head knows how many entries were acknowledged; fewer are never taken for all."""
    shell.interrupted()
    with closing(sqlite3.connect(shell.folder / "runs.db")) as database, database:
        database.execute(
            "DELETE FROM agentkit_entry WHERE place = (SELECT max(place) FROM agentkit_entry)"
        )

    shown = shell("show", "r1", "--json")
    resumed = shell("resume", "r1", "--wait", "0", seconds=30)

    assert ("damaged", 1) == (shown.json["status"], shown.code)
    assert 1 == resumed.code
    assert "is missing" in resumed.err


def test_doctor_tells_durability_and_never_a_key(shell: Shell) -> None:
    """SQLite's own word on journal mode and synchronous; keys are set or not set."""
    shell("run", "agents:talker", "Talk.", "--run-id", "r1")

    done = shell("doctor", "--json", OPENAI_API_KEY="sk-secret-1")

    assert 0 == done.code, done
    found = {finding["subject"]: finding for finding in done.json}
    assert "journal_mode=wal, synchronous=FULL" in found["durability"]["text"]
    assert ("ok", "set") == (found["OPENAI_API_KEY"]["level"], found["OPENAI_API_KEY"]["text"])
    assert "not set" == found["ANTHROPIC_API_KEY"]["text"]
    assert "has runs" in found["store"]["text"]
    assert "sk-secret-1" not in done.out + done.err + shell("doctor").out


def test_doctor_makes_nothing(shell: Shell) -> None:
    """A store that is not there yet is a note; one that cannot be made is bad: exit code 1."""
    fresh = shell("doctor")
    nowhere = shell("doctor", "--store", "sqlite:///no/such/folder/runs.db")

    assert (0, 1) == (fresh.code, nowhere.code)
    assert "is not there yet" in fresh.out
    assert "its folder does not exist" in nowhere.out
    assert not (shell.folder / "runs.db").exists()
    assert not (shell.folder / "no").exists()


def test_doctor_tells_the_rest_where_the_store_is_broken(shell: Shell) -> None:
    """Exit code 6, and the findings about the installation all the same."""
    (shell.folder / "runs.db").write_text("not a database " * 100)

    done = shell("doctor")

    assert 6 == done.code
    assert "bundled with apsw" in done.out
    assert "is not a SQLite database" in " ".join(done.out.split())


def test_doctor_tells_what_is_damaged_in_the_file(shell: Shell) -> None:
    """SQLite's own check and the list's are told; a store that is sound says so."""
    shell("run", "agents:talker", "Talk.", "--run-id", "r1")
    sound = shell("doctor", "--json")
    file = shell.folder / "runs.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE agentkit_run SET status = 'failed'")
        db.commit()
        (page,) = db.execute("PRAGMA page_size").fetchone()
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'agentkit_run_name'"
        ).fetchone()
    content = bytearray(file.read_bytes())
    content[content.index(b"r1", (root - 1) * page) + 1] ^= 2
    file.write_bytes(content)

    done = shell("doctor", "--json")

    assert ["ok"] == [one["level"] for one in sound.json if one["subject"] == "integrity"]
    assert 1 == done.code
    bad = {one["subject"]: one["text"] for one in done.json if one["level"] == "bad"}
    assert {"integrity", "store"} == set(bad)
    assert "agentkit_run_name" in bad["integrity"]
    assert "the head of run 'r1' is damaged" in bad["store"]


def test_doctor_notes_a_network_file_system(shell: Shell) -> None:
    """The kernel's table of mounts says what the folder lies on."""
    pretending = shell.startup(
        """
        import os, pathlib
        read = pathlib.Path.read_text

        def read_text(self, *args, **kwargs):
            if str(self) != "/proc/self/mountinfo":
                return read(self, *args, **kwargs)
            device = os.stat(".").st_dev
            return f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw - nfs4 host:/x rw\\n"

        pathlib.Path.read_text = read_text
        """
    )

    done = shell("doctor", PYTHONPATH=pretending)

    assert 0 == done.code
    assert "network file system (nfs4)" in " ".join(done.out.split())
