"""The invariants around the entries: their bytes and age, who may see them, how soon they moved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from agentkit.core.contracts.entries import Body
from agentkit.core.contracts.errors import JournalDamaged, JournalTooNew
from agentkit.core.contracts.heads import Head, Row, Summary
from agentkit.state.journal.codec import decode_rows
from agentkit.testing._facts import Story, chain, tell

_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(Body))


def intact(rows: Sequence[Row], *, run: str) -> Iterator[tuple[str, str]]:
    """I5, I12, I14: rows without a gap or a changed byte, and a product that reads these alone."""
    gap, bad = chain(rows)
    newer = None if gap or bad else first_newer(rows)
    if gap is not None:
        yield "I5", f"entry {gap} is missing, and the journal goes on after it"
    if bad is not None:
        yield "I14", f"entry {bad} is damaged: its checksum does not follow from the one before"
    refused = _refusal(rows, run)
    if isinstance(refused, JournalDamaged) and (gap or bad) is None:
        yield "I14", f"the product calls a sound journal damaged: {refused}"
    elif isinstance(refused, JournalTooNew) and newer is None:
        yield "I12", f"the product refuses a journal of its own age: {refused}"
    elif isinstance(refused, JournalDamaged) and refused.seq != (gap or bad):
        yield "I14", f"the product names entry {refused.seq}, the bad one is {gap or bad}"
    elif refused is None and (gap or bad):
        yield "I14", f"the product reads past the bad entry {gap or bad}"
    elif refused is None and newer:
        yield "I12", f"the product reads past entry {newer}, which a newer release wrote"


def first_newer(rows: Sequence[Row]) -> int | None:
    """The first entry of a kind that this release does not know, of rows that are intact."""
    return next((row.seq for row in rows if _kind(row) not in _KNOWN), None)


def untouched_if_newer(
    rows: Sequence[Row], earlier: Sequence[Sequence[Row]]
) -> Iterator[tuple[str, str]]:
    """I12: where a read found an entry of a newer release, this one has written nothing since."""
    newer = first_newer(rows)  # the same in each read: they are beginnings of the journal
    for read in earlier:
        if newer is not None and newer <= len(read) < len(rows):
            yield "I12", f"entry {len(read) + 1} was written although {newer} is of a newer release"


def headed(
    head: Head | None, rows: Sequence[Row], story: Story, folded: Summary
) -> Iterator[tuple[str, str]]:
    """I5, I6, I9: the head, from which lists and probes are answered, is that of these rows."""
    if head is None or not rows:
        return
    if (head.seq, head.check) != (rows[-1].seq, rows[-1].check):
        yield "I5", f"the head is that of entry {head.seq}, the journal ends at {rows[-1].seq}"
        return
    if head.epoch < story.facts[-1].epoch:
        yield "I6", f"the head has epoch {head.epoch}, the last entry {story.facts[-1].epoch}"
    told = head.summary or Summary("running")
    if told.usage != folded.usage:
        yield "I9", f"the head says {told.usage}, the entries add up to {folded.usage}"
    if (told.status, told.iteration) != (folded.status, folded.iteration):
        yield "I5", f"the head says {told.status}, {told.iteration} steps, the entries: {folded}"


def kept_apart(
    story: Story, *, scope: str | None, strangers: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """I15: the run is recorded under its own scope, and no other one sees anything of it."""
    for seen in strangers:
        yield "I15", f"another scope sees {seen}"
    for start in story.of("run_started"):
        recorded = start.body.get("scope", "")
        if scope is not None and recorded != scope:
            yield "I15", f"the run of scope {scope!r} is recorded under {recorded!r}"


def kept_secret(places: Mapping[str, bytes], secrets: Sequence[str]) -> Iterator[tuple[str, str]]:
    """I17: none of the secrets stands anywhere, neither as it is nor as JSON writes it."""
    for number, secret in enumerate(secrets, 1):
        forms = {secret.encode(), json.dumps(secret)[1:-1].encode()}
        for place, held in places.items():
            if any(form in held for form in forms):
                yield "I17", f"secret {number} stands in {place}"


def taken_over(
    rows: Sequence[Row], kills: Sequence[tuple[int, float]], *, limit_seconds: float
) -> Iterator[tuple[str, str]]:
    """L2: after each kill the next worker had the run in time."""
    for seconds in takeovers_seconds(rows, kills):
        if seconds > limit_seconds:
            yield "L2", f"a killed worker's run was taken over after {seconds:.1f} s"


def takeovers_seconds(rows: Sequence[Row], kills: Sequence[tuple[int, float]]) -> list[float]:
    """From each kill to the lease of the next worker, where there was one."""
    taken = tell(rows).of("lease_taken")
    found = []
    for seen, gone_at in kills:
        after = next((fact for fact in taken if fact.seq > seen), None)
        if after is not None:
            found.append(after.at_ms / 1000 - gone_at)
    return found


def _refusal(rows: Sequence[Row], run: str) -> JournalDamaged | JournalTooNew | None:
    try:
        for _ in decode_rows(rows, after=0, before=b"", run_id=run):
            pass
    except (JournalDamaged, JournalTooNew) as error:
        return error
    return None


def _kind(row: Row) -> str:
    *_, body = json.loads(row.body)
    return str(body["type"])
