"""Scopes: nothing of another one can be seen, counted or touched."""

from __future__ import annotations

from agentkit.core.contracts.heads import Renewal
from agentkit.core.contracts.ports import JournalPort
from agentkit.core.contracts.types import Scope
from agentkit.testing.conformance.bench import Bench
from agentkit.testing.conformance.catalogue import Subject
from agentkit.testing.conformance.expect import equal, holds
from agentkit.testing.conformance.materials import (
    TTL_SECONDS,
    plain,
    row,
    rows,
    started,
    summary,
)

scopes = Subject("scopes", "journal")


@scopes.check("JournalPort.scoped")
async def another_scope_sees_nothing(it: Bench) -> None:
    """The same run id in two scopes is two runs; a foreign run is simply not there."""
    a = it.store.scoped(Scope("a"))
    lease = await started(a, "r", 3)
    before = plain(await a.head("r"))

    for other in (it.store, *map(it.store.scoped, _NEIGHBOURS)):
        equal("rows", expected=[], actual=await other.read("r"))
        equal("head", expected=None, actual=await other.head("r"))
        equal("list", expected=([], ""), actual=await other.list_runs())
        equal("deleted", expected=False, actual=await other.delete_run("r"))
    b = it.store.scoped(Scope("b"))
    stranger = await b.acquire("r", "stranger", TTL_SECONDS)
    equal("seq of the stranger's head", expected=0, actual=stranger.head.seq)
    equal("whether the stranger took over", expected=False, actual=stranger.took_over)
    await b.append("r", [row(1, "b")], after=0, lease=stranger, summary=summary("done"))

    equal("rows in a", expected=rows(1, 3), actual=await a.read("r"))
    equal("head in a", expected=before, actual=plain(await a.head("r")))
    equal("rows in b", expected=[row(1, "b")], actual=await b.read("r"))
    renewed = await it.renew({"a": lease, "b": stranger})
    equal("renewals", expected={"a": Renewal(3), "b": Renewal(1)}, actual=renewed)


_NEIGHBOURS = [
    Scope("b"),
    Scope("", "a"),
    Scope("a", "u"),
    Scope("A"),
    Scope("a "),
    Scope("aa"),
    Scope("a%"),
    Scope("_"),
]


@scopes.check("JournalPort.append")
async def a_lease_of_another_scope_fences_nothing(it: Bench) -> None:
    """Taking a run over in one scope leaves the run of that name in another to its holder."""
    a, b = it.store.scoped(Scope("a")), it.store.scoped(Scope("b"))
    ours, theirs = await started(a, "r"), await started(b, "r")

    heir = await b.acquire("r", "heir", TTL_SECONDS, supersede=theirs.epoch)
    head = await a.append("r", rows(2), after=1, lease=ours, summary=summary())
    renewed = await it.renew({"ours": ours, "theirs": theirs, "heir": heir})

    equal("owner and seq in a", expected=("worker", 2), actual=(head.owner, head.seq))
    expected = {"ours": Renewal(2), "theirs": Renewal(1, lost=True), "heir": Renewal(1)}
    equal("renewals", expected=expected, actual=renewed)


@scopes.check("JournalPort.delete_run")
async def deleting_takes_the_run_of_one_scope_alone(it: Bench) -> None:
    """Runs of the same name in other scopes are whole afterwards."""
    views = [it.store, it.store.scoped(Scope("a")), it.store.scoped(Scope("a", "u"))]
    for number, view in enumerate(views):
        await view.append("r", [row(1, str(number))], after=0, lease=None, summary=summary())

    equal("deleted in a", expected=True, actual=await views[1].delete_run("r"))

    left = [await view.read("r") for view in views]
    equal("rows by scope", expected=[[row(1, "0")], [], [row(1, "2")]], actual=left)


@scopes.check("JournalPort.scoped")
async def scope_keys_do_not_collide(it: Bench) -> None:
    """Separators, patterns and case within tenant and user names do not make two scopes one."""
    names = ["a/b", "a%2Fb", "a%", "{a}", "a:b", "a#b", "A/B", "ä", "a\u0308", "'", "*", "😀"]
    views = [it.store.scoped(Scope(name)) for name in names]
    views += [it.store.scoped(Scope(*pair)) for pair in (("a", "b"), ("", "a/b"), ("a%", "2Fb"))]
    for number, view in enumerate(views):
        await view.append("r", [row(1, str(number))], after=0, lease=None, summary=summary())

    for number, view in enumerate(views):
        found = await view.read("r")
        equal(f"rows in scope {number}", expected=[row(1, str(number))], actual=found)
        listed, _ = await view.list_runs()
        equal(f"list in scope {number}", expected=["r"], actual=[one.run for one in listed])


@scopes.check("JournalPort.scoped")
async def a_view_of_a_view_is_the_later_scope_alone(it: Bench) -> None:
    """Scopes replace one another; they do not nest, and the first object stays as it is."""
    a = it.store.scoped(Scope("a"))
    await started(a, "r")

    async def sees(view: JournalPort) -> int:
        return len(await view.read("r"))

    equal(
        "from b to a", expected=1, actual=await sees(it.store.scoped(Scope("b")).scoped(Scope("a")))
    )
    equal("from a to b", expected=0, actual=await sees(a.scoped(Scope("b"))))
    equal("from a to none", expected=0, actual=await sees(a.scoped(Scope())))
    equal("the first view", expected=1, actual=await sees(a))
    equal("the store itself", expected=0, actual=await sees(it.store))


@scopes.check("JournalPort.location")
async def scoped_views_share_one_location(it: Bench) -> None:
    """The location names the data, not the view."""
    view = it.store.scoped(Scope("a"))
    equal("location of a view", expected=it.store.location, actual=view.location)


@scopes.check("JournalPort.scopes", "scopes")
async def scopes_are_those_that_hold_runs(it: Bench) -> None:
    """In order of code points, in pages, seen alike from each scope; a mere claim is no run."""
    store = it.store
    views = [store.scoped(Scope(tenant, user)) for tenant in ("", "b", "ä") for user in ("", "u")]
    equal("scopes of an empty store", expected=[], actual=await store.scopes())
    for view in views:
        for run in ("r", "s"):
            await view.append(run, rows(1), after=0, lease=None, summary=summary())
    await store.scoped(Scope("claimed")).acquire("r", "worker", TTL_SECONDS)

    every = ["", "/u", "b", "b/u", "ä", "ä/u"]
    equal("scopes", expected=every, actual=await store.scopes())
    equal("scopes, from a view", expected=every, actual=await views[3].scopes())
    equal("the first two", expected=every[:2], actual=await store.scopes(limit=2))
    equal("after /u", expected=every[2:], actual=await store.scopes(after="/u"))
    equal("after the empty one", expected=every[1:], actual=await store.scopes(after=""))
    equal("two after b", expected=every[3:5], actual=await store.scopes(after="b", limit=2))
    equal("after one that is not there", expected=every[2:], actual=await store.scopes(after="a"))
    equal("after the last", expected=[], actual=await store.scopes(after="ä/u"))


@scopes.check("JournalPort.scopes", "scopes")
async def a_scope_goes_with_its_last_run(it: Bench) -> None:
    """Deleted runs leave no scope behind that nobody is in."""
    view = it.store.scoped(Scope("a"))
    for run in ("r", "s"):
        await view.append(run, rows(1), after=0, lease=None, summary=summary())

    await view.delete_run("r")
    equal("scopes while a run is left", expected=["a"], actual=await it.store.scopes())
    await view.delete_run("s")

    equal("scopes when none is left", expected=[], actual=await it.store.scopes())


@scopes.check("JournalPort.scoped")
async def the_first_scope_is_a_scope_like_others(it: Bench) -> None:
    """`Scope()` is where a new store looks; it does not see into all of them."""
    await started(it.store.scoped(Scope("a")), "in a")
    await started(it.store.scoped(Scope()), "in none")

    listed, _ = await it.store.list_runs()

    equal("the list", expected=["in none"], actual=[one.run for one in listed])
    holds("the run of a is not there", true=await it.store.head("in a") is None)
