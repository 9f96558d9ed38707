"""From a request to what goes out: gate, faults, script, rendering, record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentkit.testing.provider import anthropic_wire, openai_wire
from agentkit.testing.provider.fault_replies import error_reply, refusal_reply
from agentkit.testing.provider.faults import Fault, FaultQueue
from agentkit.testing.provider.gate import Gate
from agentkit.testing.provider.ledger import Call, Ledger
from agentkit.testing.provider.refusal import Refusal
from agentkit.testing.provider.reply import Reply
from agentkit.testing.provider.script import (
    Answer,
    Api,
    ProviderRequest,
    ProviderScript,
    ScriptError,
)
from agentkit.testing.provider.shapes import digest

__all__ = ["Outcome", "Service", "request_id"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to send, how to spoil it, and the record it belongs to."""

    call: Call
    reply: Reply
    fault: Fault | None = None


@dataclass(slots=True)
class Service:
    """The provider without its sockets.

    Args:
        script: chooses the answers; may be exchanged while requests are served.
        gate: decides what is refused.
        faults: the failures to come.
        ledger: the records.
    """

    script: ProviderScript
    gate: Gate
    faults: FaultQueue
    ledger: Ledger

    def handle(self, api: Api, path: str, headers: Mapping[str, str], raw: bytes) -> Outcome:
        """Decide about one request; a bought answer is on the record before this returns.

        Args:
            api: which API was addressed.
            path: as requested.
            headers: of the request, with lower-case names.
            raw: its body.
        """
        call = self.ledger.arrive(path)
        body, refusal = self.gate.admit(api, headers, raw)
        request = ProviderRequest(api, body, digest(body) if body else "")
        call = replace(
            call, model=request.model, request=body, digest=request.digest, turn=request.turn
        )
        if refusal is not None:
            return self._refuse(call, api, refusal)
        fault = self.faults.take(request)
        if fault is not None and _says_no(fault, request):
            call = replace(call, fault=fault.kind)
            reply = error_reply(api, fault, request_id=request_id(call))
            return Outcome(self.ledger.update(replace(call, status=reply.status)), reply)
        answer = self._ask(request)
        if isinstance(answer, Refusal):
            return self._refuse(call, api, answer)
        return self._sell(call, request, answer, fault)

    def _refuse(self, call: Call, api: Api, refusal: Refusal) -> Outcome:
        call = self.ledger.update(replace(call, refusal=refusal, status=refusal.status))
        return Outcome(call, refusal_reply(api, refusal, request_id=request_id(call)))

    def _sell(
        self, call: Call, request: ProviderRequest, answer: Answer, fault: Fault | None
    ) -> Outcome:
        kind = None if fault is None else fault.kind
        render = anthropic_wire.render if request.api == "anthropic" else openai_wire.render
        message_id = f"{call.digest[:20]}{call.number:06d}"
        reply = render(request, answer, message_id=message_id, stops=kind != "no_stop_reason")
        status = 0 if kind == "cut_before_headers" else reply.status
        return Outcome(self.ledger.bought(replace(call, fault=kind, status=status)), reply, fault)

    def _ask(self, request: ProviderRequest) -> Answer | Refusal:
        try:
            return self.script.respond(request)
        except ScriptError as error:
            return Refusal("no_answer", f"provider script: {error}")
        except Exception as error:  # noqa: BLE001 - the script is the caller's code
            return Refusal("script_failed", f"provider script raised {error!r}")


def request_id(call: Call) -> str:
    """Name a request for the log of its client."""
    return f"req_{call.number:06d}{call.digest[:16]}"


def _says_no(fault: Fault, request: ProviderRequest) -> bool:
    # Outside a stream there is no event that could say it.
    in_stream = bool(request.body.get("stream"))
    return fault.replaces_answer or (fault.kind == "stream_error" and not in_stream)
