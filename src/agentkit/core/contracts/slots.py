"""Slot names: how `{run_id}:agent:{name}` and its siblings map to a run and a lane, and back."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentkit.core.contracts.errors import InvalidId

__all__ = ["MAX_ID_CHARACTERS", "Slot", "agent_lane", "agent_slot", "check_id", "parse", "slot_of"]

MAX_ID_CHARACTERS = 512
"""Longest run id, agent name or tool name, in characters."""

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_RESERVED = re.compile(r"[:%#{}]")
_LANE = re.compile(r"^(.*?):(plan|journal|done|agent:[^:{}]+)$", re.DOTALL)


class Slot(NamedTuple):
    """A producer's lane in a run's journal. `lane` is empty for the run's own producer."""

    run: str
    lane: str


def check_id(value: str, *, what: str = "run id") -> str:
    """Return `value` if it may name a run, an agent or an owner.

    Raises:
        InvalidId: it is empty, longer than 512 characters, or holds control characters or lone
            surrogates.
    """
    if not isinstance(value, str) or not value:
        message = f"{what} must be a non-empty string, not {value!r}"
        raise InvalidId(message)
    if len(value) > MAX_ID_CHARACTERS:
        message = f"{what} has {len(value)} characters; the limit is {MAX_ID_CHARACTERS}"
        raise InvalidId(message)
    if _FORBIDDEN.search(value):
        message = f"{what} {value!r} holds control characters or lone surrogates"
        raise InvalidId(message)
    return value


def slot_of(run: str, lane: str) -> str:
    """The public name of a lane: `{run}` or `{run}:{lane}`, reserved characters escaped."""
    name = _escape(run)
    return f"{name}:{lane}" if lane else name


def agent_slot(run: str, agent: str) -> str:
    """The slot of agent `agent` in run `run`: `{run}:agent:{agent}`."""
    return slot_of(check_id(run), agent_lane(agent))


def agent_lane(agent: str) -> str:
    """The lane of an agent: `agent:{name}`."""
    return "agent:" + _escape(check_id(agent, what="agent name"))


def parse(slot: str) -> Slot:
    """Split a slot name into run and lane. Total: any other string is a run of its own."""
    match = _LANE.match(slot)
    if match and match.group(1):
        return Slot(_unescape(match.group(1)), match.group(2))
    return Slot(_unescape(slot), "")


def _escape(text: str) -> str:
    return _RESERVED.sub(lambda match: f"%{ord(match.group()):02X}", text)


def _unescape(text: str) -> str:
    return re.sub(r"%(3A|25|23|7B|7D)", lambda match: chr(int(match.group(1), 16)), text)
