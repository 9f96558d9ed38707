"""Endpoints by which another process reads the records and orders faults."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from agentkit.testing.provider.delivery import Stalls
from agentkit.testing.provider.faults import FaultError, faults_from_json
from agentkit.testing.provider.reply import Reply, json_reply
from agentkit.testing.provider.script import ScriptError, TurnScript
from agentkit.testing.provider.service import Service
from agentkit.testing.provider.shapes import BadJson, Body, parse, table

__all__ = ["CONTROL_PREFIX", "control_reply"]

CONTROL_PREFIX = "/__control/"
_WAIT_SECONDS = 10.0


def control_reply(service: Service, stalls: Stalls, path: str, raw: bytes | None) -> Reply:
    """Answer a control request.

    - ``GET calls``: ``{"calls": [call, …], "reached": bool}``. With ``?wait=N`` (and
      ``&timeout=SECONDS``, default 10) it first waits until N calls have been decided about.
    - ``POST faults``: ``{"next": [fault, …], "always": fault or null, "clear": bool}``, each part
      optional; ``clear`` comes first.
    - ``POST script``: a JSON script that is used from then on.
    - ``POST release``: ends all stalls.

    Args:
        service: the provider.
        stalls: its stalled responses.
        path: as requested, with its query.
        raw: the body of a POST; None for a GET.
    """
    parts = urlsplit(path)
    name = parts.path.removeprefix(CONTROL_PREFIX)
    if raw is None:
        if name != "calls":
            return _error(404, f"no control endpoint GET {name}")
        return json_reply("openai", _calls(service, parse_qs(parts.query)))
    try:
        value = parse(raw) if raw else {}
        if name == "faults":
            _faults(service, table(value))
        elif name == "script":
            service.script = TurnScript.from_json(value)
        elif name == "release":
            stalls.release()
        else:
            return _error(404, f"no control endpoint POST {name}")
    except (BadJson, FaultError, ScriptError) as error:
        return _error(400, str(error))
    return json_reply("openai", {"ok": True})


def _calls(service: Service, query: dict[str, list[str]]) -> Body:
    wanted = int(query.get("wait", ["0"])[0])
    timeout = float(query.get("timeout", [str(_WAIT_SECONDS)])[0])
    reached = service.ledger.wait_for_calls(wanted, timeout_seconds=timeout)
    return {"calls": [call.to_json() for call in service.ledger.calls], "reached": reached}


def _faults(service: Service, value: Body) -> None:
    queued, always = faults_from_json(value)
    if value.get("clear"):
        service.faults.clear()
    service.faults.add(*queued)
    if "always" in value:
        service.faults.always(always)


def _error(status: int, message: str) -> Reply:
    return json_reply("openai", {"error": {"message": message}}, status=status)
