"""Several processes on one place: ownership, death and forks are no matter of one object."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

import msgspec

from agentkit.core.contracts.errors import LeaseLost, RunInUse
from agentkit.core.contracts.heads import Renewal
from agentkit.testing.conformance._child import Reply, Request
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import Broken, equal, holds, refused
from agentkit.testing.conformance.materials import TTL_SECONDS, rows, started, summary

processes = Subject("processes", "journal", "processes")


class _Child:
    """A process that opens the place by itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def ask(
        self, do: str, run: str, *, owner: str = "", seq: int = 1, count: int = 1
    ) -> Reply:
        """Have it do something, and wait for the answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("the pipes were asked for")
        request = Request(do, run, owner=owner, seq=seq, count=count)
        stdin.write(msgspec.json.encode(request) + b"\n")
        line = await stdout.readline()
        if not line:
            errors = await self.process.stderr.read() if self.process.stderr else b""
            raise Broken(f"a child process that should {do} ended: {errors.decode()[-2000:]}")
        return msgspec.json.decode(line, type=Reply)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@contextlib.asynccontextmanager
async def _children(it: Bench, count: int) -> AsyncIterator[list[_Child]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = ["-W", "ignore::DeprecationWarning", "-m", "agentkit.testing.conformance._child"]
    pipe = asyncio.subprocess.PIPE
    children = [
        _Child(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                it.harness.opener,
                it.place,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=environment,
            )
        )
        for _ in range(count)
    ]
    try:
        yield children
    finally:
        for child in children:
            await child.kill()


@processes.check("JournalPort.acquire")
async def a_lease_counts_in_every_process(it: Bench) -> None:
    """What one process holds no other one gets, deletes or appends to; what it lost it hears."""
    store = it.as_a_child_opens_it()
    async with _children(it, 1) as (child,):
        theirs = await child.ask("acquire", "r", owner="child")
        equal("what the child was told", expected="", actual=theirs.error)
        await child.ask("append", "r")
        await refused(RunInUse, store.acquire("r", "here", TTL_SECONDS), what="a second lease")
        await refused(RunInUse, store.delete_run("r"), what="deleting what the child holds")

        ours = await store.acquire("r", "here", TTL_SECONDS, supersede=theirs.epoch)
        late = await child.ask("append", "r", seq=2)
        renewed = await child.ask("renew", "r")
        again = await child.ask("acquire", "r", owner="child")

    holds("the epoch has grown", true=ours.epoch > theirs.epoch)
    holds("the lease took over", true=ours.took_over)
    equal("the child's late append", expected="LeaseLost", actual=late.error)
    equal("the child's renewal", expected=(1, True), actual=(renewed.seq, renewed.lost))
    equal("the child's next claim", expected="RunInUse", actual=again.error)
    equal("the rows", expected=rows(1), actual=await store.read("r"))


@processes.check("JournalPort.acquire")
async def of_contending_processes_one_has_each_run(it: Bench) -> None:
    """Three processes claim thirty runs at once: each run has one owner, and his entry alone."""
    store = it.as_a_child_opens_it()
    async with _children(it, 3) as children:
        won = await asyncio.gather(
            *(
                child.ask("contend", "r", owner=f"process {number}", count=30)
                for number, child in enumerate(children)
            )
        )

    winners = sorted(run for reply in won for run in reply.won)
    equal("runs that were won", expected=sorted(f"r{n}" for n in range(30)), actual=winners)
    for number, reply in enumerate(won):
        for run in reply.won:
            head = await store.head(run)
            owner = head and (head.owner, head.seq)
            equal(f"owner and seq of {run}", expected=(f"process {number}", 1), actual=owner)


@processes.check("JournalPort.append")
async def processes_append_at_once(it: Bench) -> None:
    """Three processes with six runs each: contention slows them down and fails none."""
    store = it.as_a_child_opens_it()
    async with _children(it, 3) as children:
        replies = await asyncio.gather(
            *(child.ask("work", f"{n}-", count=6) for n, child in enumerate(children))
        )

    equal("what they were told", expected=[""] * 3, actual=[reply.error for reply in replies])
    runs = sorted(f"{n}-{m}" for n in range(3) for m in range(6))
    for run in runs:
        equal(f"rows of {run}", expected=rows(1, 10), actual=await store.read(run))
    listed, _ = await store.list_runs()
    equal("the list", expected=runs, actual=sorted(one.run for one in listed))


@processes.check("JournalPort.append")
async def a_killed_process_leaves_entries_and_lease(it: Bench) -> None:
    """After SIGKILL what it was told is there, its lease is held until somebody proves it dead,
    and its successor goes on behind it.
    """
    store = it.as_a_child_opens_it()
    async with _children(it, 1) as (child,):
        theirs = await child.ask("acquire", "r", owner="child")
        for seq in (1, 2, 3):
            await child.ask("append", "r", seq=seq)
        await child.kill()

    equal("the rows", expected=rows(1, 3), actual=await store.read("r"))
    await refused(RunInUse, store.acquire("r", "heir", TTL_SECONDS), what="the dead one's lease")
    heir = await store.acquire("r", "heir", TTL_SECONDS, supersede=theirs.epoch)
    equal("recoveries", expected=1, actual=heir.head.recoveries)
    head = await store.append("r", rows(4), after=3, lease=heir, summary=summary())
    equal("where the heir's append is", expected=4, actual=head.seq)


@processes.check("JournalPort", "fork")
async def a_forked_child_opens_its_own_connections(it: Bench) -> None:
    """Parent and child go on with the same object, and each of them loses nothing."""
    store = it.as_a_child_opens_it()
    lease = await started(store, "here")
    async with _children(it, 1) as (child,):
        reply = await child.ask("fork", "r")

    equal("what came of it", expected="", actual=reply.error)
    for when in ("before", "child", "parent", "after"):
        found = await store.read(f"r {when}")
        equal(f"rows of the run {when}", expected=rows(1, 10), actual=found)
    renewed = await asyncio.to_thread(store.renew, {"here": lease})
    equal("the renewal here", expected={"here": Renewal(1)}, actual=renewed)


@processes.check("JournalPort.renew")
async def a_lease_may_be_renewed_and_lost_across_processes(it: Bench) -> None:
    """The one who was taken over here hears it there, and appends no more."""
    store = it.as_a_child_opens_it()
    ours = await started(store, "r")
    async with _children(it, 1) as (child,):
        refusal = await child.ask("acquire", "r", owner="child")
        await store.append("r", [], after=1, lease=ours, summary=summary(), release=True)
        theirs = await child.ask("acquire", "r", owner="child")
        await child.ask("append", "r", seq=2)

        late = store.append("r", rows(3), after=2, lease=ours, summary=summary())
        await refused(LeaseLost, late, what="an append under the lease that was released")
        renewed = await asyncio.to_thread(store.renew, {"r": ours})

    equal("the child's first claim", expected="RunInUse", actual=refusal.error)
    holds("the epoch has grown", true=theirs.epoch > ours.epoch)
    equal("the renewal", expected={"r": Renewal(2, lost=True)}, actual=renewed)
