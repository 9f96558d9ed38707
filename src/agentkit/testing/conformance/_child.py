"""What a child process of the checks does: it opens the place and answers, one line each."""

from __future__ import annotations

import asyncio
import os
import sys
from pkgutil import resolve_name

import msgspec

from agentkit.core.contracts.errors import AgentkitError
from agentkit.core.contracts.heads import Lease
from agentkit.core.contracts.ports import JournalPort
from agentkit.testing.conformance.materials import rows, started, summary


class Request(msgspec.Struct, frozen=True):
    """One thing to do.

    Args:
        do: `acquire`, `append`, `renew`, `contend`, `work` or `fork`.
        run: the run, or what the names of runs begin with.
        owner: whoever asks.
        seconds: of a lease.
        seq: of the first row to append.
        count: of rows, or of runs.
    """

    do: str
    run: str
    owner: str = ""
    seconds: float = 60.0
    seq: int = 1
    count: int = 1


class Reply(msgspec.Struct, frozen=True):
    """What came of it: the name of an error, or numbers that depend on what was asked."""

    error: str = ""
    epoch: int = 0
    seq: int = 0
    lost: bool = False
    won: tuple[str, ...] = ()


class Worker:
    """Holds the leases that it was given."""

    def __init__(self, store: JournalPort) -> None:
        self._store = store
        self._leases: dict[str, Lease] = {}

    def answer(self, request: Request) -> Reply:
        """Do it, in a loop of its own."""
        try:
            if request.do == "fork":
                return self._fork(request)
            return asyncio.run(self._do(request))
        except AgentkitError as exc:
            return Reply(error=type(exc).__name__)

    async def _do(self, it: Request) -> Reply:
        match it.do:
            case "acquire":
                lease = await self._store.acquire(it.run, it.owner, it.seconds)
                self._leases[it.run] = lease
                return Reply(epoch=lease.epoch, seq=lease.head.seq)
            case "append":
                head = await self._store.append(
                    it.run,
                    rows(it.seq, it.count),
                    after=it.seq - 1,
                    lease=self._leases.get(it.run),
                    summary=summary(),
                )
                return Reply(epoch=head.epoch, seq=head.seq)
            case "renew":
                renewal = self._store.renew({"r": self._leases[it.run]})["r"]
                return Reply(seq=renewal.seq, lost=renewal.lost)
            case "contend":
                won = [await self._contend(f"{it.run}{n}", it.owner) for n in range(it.count)]
                return Reply(won=tuple(run for run in won if run))
            case "work":
                await asyncio.gather(*(self._work(f"{it.run}{n}") for n in range(it.count)))
                return Reply()
        raise AssertionError(f"nobody asks for {it.do!r}")

    async def _contend(self, run: str, owner: str) -> str:
        try:
            await started(self._store, run, owner=owner)
        except AgentkitError:
            return ""
        return run

    async def _work(self, run: str) -> None:
        lease = await started(self._store, run)
        for seq in range(2, 11):
            await self._store.append(run, rows(seq), after=seq - 1, lease=lease, summary=summary())
        await self._store.append(run, [], after=10, lease=lease, summary=summary(), release=True)

    def _fork(self, it: Request) -> Reply:
        """Work on both sides of a fork, with one object that was used before it."""
        asyncio.run(self._work(f"{it.run} before"))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(self._work(f"{it.run} child"))
                asyncio.run(self._store.aclose())
                code = 0
            finally:
                os._exit(code)
        asyncio.run(self._work(f"{it.run} parent"))
        _, status = os.waitpid(pid, 0)
        asyncio.run(self._work(f"{it.run} after"))
        return Reply(error="" if status == 0 else f"the child ended with {status}")


def main() -> None:
    """Answer until there is nothing more to read, and end with the parent."""
    opener, place = sys.argv[1:]
    worker = Worker(resolve_name(opener)(place))
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Request)
        sys.stdout.buffer.write(msgspec.json.encode(worker.answer(request)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
