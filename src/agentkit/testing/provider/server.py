"""The provider as its users hold it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from agentkit.testing.provider.delivery import Stalls
from agentkit.testing.provider.faults import Fault, FaultQueue
from agentkit.testing.provider.gate import Gate
from agentkit.testing.provider.http_shell import HttpServer
from agentkit.testing.provider.ledger import Call, Ledger
from agentkit.testing.provider.script import ScriptSource, as_script
from agentkit.testing.provider.service import Service

__all__ = ["StrictProvider"]

_POLL_SECONDS = 0.02
_JOIN_SECONDS = 5.0


class StrictProvider:
    """A model provider on loopback that answers by script and refuses what the real ones refuse.

    Use it as a context manager. The official SDKs talk to it with `base_url` set to
    `anthropic_url` or `openai_url`.

    Args:
        script: chooses the answers: an object with `respond`, a function from `ProviderRequest` to
            `Answer`, a list of answers, a path to a JSON script, or its parsed content.
        api_key: the one key that is valid.
        models: the known models; None knows every name.
        log: a file that receives the bought and the sent answers, see `Ledger`.
        port: 0 takes a free one.

    Raises:
        ScriptError: the script is malformed.
        OSError: the port or the log cannot be opened.
    """

    def __init__(
        self,
        script: ScriptSource,
        *,
        api_key: str = "test-key",
        models: Collection[str] | None = None,
        log: Path | None = None,
        port: int = 0,
    ) -> None:
        self._faults = FaultQueue()
        self._stalls = Stalls()
        service = Service(as_script(script), Gate(api_key, models), self._faults, Ledger(log))
        self._service = service
        self._server = HttpServer(("127.0.0.1", port), service=service, stalls=self._stalls)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="provider", daemon=True
        )
        self.api_key = api_key

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, end stalled responses, close all connections, wait for their threads."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(_JOIN_SECONDS)
        self._stalls.close()
        self._server.hang_up()
        self._server.server_close()
        self._service.ledger.close()

    @property
    def url(self) -> str:
        """The root, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def anthropic_url(self) -> str:
        """`base_url` for the Anthropic SDK."""
        return self.url

    @property
    def openai_url(self) -> str:
        """`base_url` for the OpenAI SDK."""
        return f"{self.url}/v1"

    @property
    def calls(self) -> list[Call]:
        """All requests so far, in order of arrival.

        A record is complete before its response begins, but for `answered` and `ended`, which
        follow the last byte: `settle` waits for them.
        """
        return self._service.ledger.calls

    @property
    def refusals(self) -> list[Call]:
        """The requests that were refused, each with its `refusal`."""
        return [call for call in self.calls if call.refusal is not None]

    def wait_until(
        self, condition: Callable[[list[Call]], bool], *, timeout_seconds: float = 10.0
    ) -> bool:
        """Wait until a condition on the calls holds; return whether it does."""
        return self._service.ledger.wait_until(condition, timeout_seconds=timeout_seconds)

    def wait_for_calls(self, count: int, *, timeout_seconds: float = 10.0) -> bool:
        """Wait until so many requests have been decided about; return whether they have.

        A request that a fault will stall counts: `release` called after this ends its stall.
        """
        return self._service.ledger.wait_for_calls(count, timeout_seconds=timeout_seconds)

    def settle(self, *, timeout_seconds: float = 10.0) -> bool:
        """Wait until the provider has done with every request so far; return whether it has."""
        return self.wait_until(
            lambda calls: all(call.ended for call in calls), timeout_seconds=timeout_seconds
        )

    def fail_next(self, *faults: Fault) -> None:
        """Let each fault strike once, in this order, each the first request it is meant for."""
        self._faults.add(*faults)

    def always(self, fault: Fault | None) -> None:
        """Let a fault strike whenever no queued one does; None ends that."""
        self._faults.always(fault)

    def clear_faults(self) -> None:
        """Forget all faults that have not struck."""
        self._faults.clear()

    def release(self) -> None:
        """End the stalls of all requests that have arrived."""
        self._stalls.release()

    def use_script(self, script: ScriptSource) -> None:
        """Answer by another script from the next request on."""
        self._service.script = as_script(script)
