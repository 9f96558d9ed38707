"""Journals of earlier releases, and of this one: read, shown, carried on, and exported again."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from agentkit.core.contracts import entries as e
from agentkit.core.contracts.heads import RunStatus
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Decision
from agentkit.core.testing import FakeClock
from agentkit.state.checkpoints.adapters import InMemoryCheckpointStore
from agentkit.state.journal.journal import load
from agentkit.state.upkeep import ExportReader, Selection, export_runs, import_runs
from agentkit.state.upkeep.lines import ExportedRun
from tests.agents.kit import context, entries_of
from tests.cli.kit import Shell
from tests.corpus.make import AGENT, CATALOGUE, MORE, TASK, filled, make, model

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.jsonl"))
RELEASES = sorted({path.parent.name for path in FILES})


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


async def _store(path: Path) -> InMemoryCheckpointStore:
    """A store with all runs of a file."""
    store = InMemoryCheckpointStore()
    moved = [one async for one in import_runs(_lines(path), store, clock=FakeClock())]
    assert [] == [one for one in moved if one.error is not None]
    return store


def _named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.mark.parametrize("path", FILES, ids=_named)
async def test_a_file_is_exported_again_byte_for_byte(path: Path) -> None:
    """Through a store and out of it: nothing is re-encoded."""
    store = await _store(path)
    again: list[bytes] = []
    header = ExportReader(_lines(path)).header

    exported = export_runs(store, again.append, Selection(), header=header, clock=FakeClock())
    outcomes = {one.run: one.outcome async for one in exported}

    assert {"copied"} == set(outcomes.values())
    assert _stable(_lines(path)) == _stable(again)


def _stable(lines: list[bytes]) -> list[bytes]:
    """All lines but those of tombstones, whose epoch is their head's and grows when they are
    copied, and the end, which is sealed over them.
    """
    return [line for line in lines if b',"tombstone":{' not in line and b'"kind":"end"' not in line]


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_holds_every_status(release: str) -> None:
    """And the one that is no status: entries that are gone."""
    heads = [
        one.head
        for path in FILES
        if path.parent.name == release
        for one in ExportReader(_lines(path))
        if isinstance(one, ExportedRun)
    ]

    assert set(typing.get_args(RunStatus)) == {head.status for head in heads}
    assert any(head.tombstone for head in heads)
    assert {"", "acme/ann%2Fä"} == {head.scope for head in heads}


async def test_the_newest_corpus_holds_every_kind_with_every_field() -> None:
    """A kind or field that is added is missing here until the corpus is made again."""
    store = await _store(HERE / RELEASES[-1] / "catalogue.jsonl")

    bodies = {type(entry.body): entry.body for entry in await entries_of(store, CATALOGUE)}

    for kind in typing.get_args(e.Body):
        assert kind in bodies, f"{kind.__name__}: python -m tests.corpus.make"
        assert filled(kind) == bodies[kind], kind.__name__


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "run", ["submitted", "interrupted", "in-doubt", "suspended", "parked", "forked"]
)
async def test_what_was_open_is_carried_on_to_its_end(run: str, release: str) -> None:
    """By this release, with what was recorded by that one; nothing completed is done again."""
    store = await _store(HERE / release / "runs.jsonl")
    before = await _finished(store, run)
    llm = model()

    result = await AGENT.resume(run, {}, context(llm, store, run_id=run))
    while questions := (await load(store, run)).questions:
        decisions = {one.id: Decision("skip") for one in questions}
        result = await AGENT.resume(run, decisions, context(llm, store, run_id=run))

    assert "Done." == result.output
    after = await _finished(store, run)
    assert before == {place: after[place] for place in before}


async def _finished(store: JournalPort, run: str) -> dict[tuple[int, int], int]:
    """Where each call ended."""
    return {
        (entry.body.turn, entry.body.index): entry.seq
        for entry in await entries_of(store, run)
        if isinstance(entry.body, e.ToolFinished) and entry.body.outcome == "ok"
    }


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("run", ["finished", "tombstone"])
async def test_what_had_ended_hands_out_its_result(run: str, release: str) -> None:
    """Without asking a model."""
    store = await _store(HERE / release / "runs.jsonl")
    llm = model()

    assert "Done." == (await AGENT.run(TASK, context(llm, store, run_id=run))).output
    assert [] == llm.requests


@pytest.mark.parametrize("release", RELEASES)
async def test_conversations_of_a_release_are_carried_on(release: str) -> None:
    """One that was carried on then hands out its result, and goes on as another run."""
    store = await _store(HERE / release / "runs.jsonl")
    llm = model()

    known = await AGENT.run(MORE, context(llm, store, run_id="carried"), after="finished")
    assert [] == llm.requests
    result = await AGENT.run(MORE, context(llm, store, run_id="next"), after="carried")

    assert "Done." == known.output == result.output
    assert 1 == len(llm.requests) == result.usage.requests
    assert await _finished(store, "finished") == await _finished(store, "next")


@pytest.mark.parametrize("release", RELEASES)
async def test_each_run_is_folded_to_the_status_that_was_written(release: str) -> None:
    """By the release that wrote it."""
    for path in (HERE / release).glob("*.jsonl"):
        store = await _store(path)
        for one in ExportReader(_lines(path)):
            assert isinstance(one, ExportedRun)
            if one.head.scope == "":
                state = await load(store, one.head.run)
                status = "done" if one.head.tombstone else state.status
                assert one.head.status == status, one.head.run


@pytest.mark.slow
def test_each_run_is_shown(shell: Shell) -> None:
    """By the command line, from a store that the files were imported into."""
    for path in FILES:
        url = f"sqlite:///{path.parent.name}-{path.stem}.db"
        assert 0 == shell("import", str(path), "--store", url).code
    for run in ("finished", "suspended", "tombstone", "forked"):
        shown = shell("show", run, "--store", f"sqlite:///{RELEASES[-1]}-runs.db")
        assert 0 == shown.code, shown
        assert f"run     {run}" in shown.out


async def test_anybody_can_make_the_corpus(tmp_path: Path) -> None:
    """The files of this release come from this code."""
    await make(tmp_path)

    for path in (HERE / RELEASES[-1]).glob("*.jsonl"):
        runs = [
            [(one.head.run, len(one.rows)) for one in ExportReader(_lines(file)) if one]  # type: ignore[union-attr]
            for file in (path, tmp_path / path.name)
        ]
        assert runs[0] == runs[1]
