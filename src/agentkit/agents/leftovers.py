"""What dead workers of this machine have left running: commands of their tools."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import msgspec

from agentkit.core.contracts.values import decode_value
from agentkit.core.runtime.groups import RECORD_PREFIX, Group, kill_group
from agentkit.state.journal.drives import known
from agentkit.state.journal.fold import RunState
from agentkit.state.journal.owner import is_dead

__all__ = ["kill_leftovers"]

_log = logging.getLogger(__name__)


class _Started(msgspec.Struct):
    """What `run_command` records."""

    owner: str
    number: int
    started: int
    mark: str


def kill_leftovers(state: RunState) -> int:
    """Kill what is left of the commands of this run whose worker is proved dead; how many groups.

    Called by whoever takes the run, before anything else. A worker that may be alive, or lived on
    another machine, is let be: its commands are its own.
    """
    killed = 0
    for one in _commands(state):
        group = Group(one.number, one.started, one.mark)
        if is_dead(one.owner, known_drives=known) and kill_group(group):
            killed += 1
            _log.warning(
                "run %r: killed process group %d of a dead worker", state.run_id, one.number
            )
    return killed


def _commands(state: RunState) -> Iterator[_Started]:
    """The commands of calls that are not over."""
    for lane in state.lanes.values():
        for call in lane.turn.calls if lane.turn is not None else ():
            if call.settled:
                continue
            for name, value in call.values.items():
                if name.startswith(RECORD_PREFIX):
                    with contextlib.suppress(msgspec.ValidationError):  # a tool's own value
                        yield msgspec.convert(decode_value(value), _Started)
