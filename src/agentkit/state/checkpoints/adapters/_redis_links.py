"""Connections to Redis servers, with our scripts in them, and who of them has which keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple, TypeAlias, cast

from agentkit.core.contracts.errors import StoreError
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters._redis_address import Address, Place, Wire
from agentkit.state.checkpoints.adapters._redis_errors import PASSING, code_of, driver
from agentkit.state.checkpoints.adapters._redis_states import (
    SETTINGS,
    ServerState,
    state_of,
)
from agentkit.state.checkpoints.adapters._redis_wire import packed, slot_owners

Word: TypeAlias = "str | bytes | int"
Reply: TypeAlias = "bytes | int | list[Reply] | None"
Answer: TypeAlias = "Reply | Exception"

SETTINGS_SECONDS = 60.0
"""How long what a server says of its settings is believed."""

_PART_BYTES = 65_536


class Call(NamedTuple):
    """A command or a script for the server that has `keys`; without keys, for every master, or the
    one that is `at` that place of a cluster: the reply is a list of theirs. An operation gets
    `None` for the reply to one that is `optional` and failed.
    """

    name: str
    keys: tuple[str, ...] = ()
    args: tuple[Word, ...] = ()
    script: bool = False
    at: Place | None = None
    optional: bool = False


def optional(calls: Sequence[Call]) -> list[Call]:
    """Calls that an operation does without where they fail."""
    return [call._replace(optional=True) for call in calls]


Examine: TypeAlias = Callable[[ServerState], None]


class Link:
    """One connection to one server, with the scripts loaded.

    Args:
        connection: not open yet.
        name: of the server, for messages.
        examine: raises where the server is not one to be used.

    Raises:
        StoreError: it is not one to be used.
        redis.RedisError: it cannot be reached, or refuses.
    """

    def __init__(self, connection: Wire, name: str, examine: Examine) -> None:
        self._connection = connection
        self._name = name
        self._examine = examine
        self._clock = SystemClock()
        connection.connect()
        try:
            self._load()
            self._look()
        except BaseException:
            self.close()
            raise

    def exchange(self, calls: Sequence[Call], *, asking: bool = False) -> list[Answer]:
        """Send these at once and return the answers in order; errors of single ones among them."""
        self.send(calls, asking=asking)
        return self.receive()

    def send(self, calls: Sequence[Call], *, asking: bool = False) -> None:
        """The first half of `exchange`: nothing may be sent until `receive`."""
        if self._clock.elapsed() - self._looked > SETTINGS_SECONDS:
            self._look()
        self._put(calls, asking=asking)

    def receive(self) -> list[Answer]:
        """The second half: the answers. A script that the server has lost is brought again, and
        where it is lost again by then, it is sent whole.
        """
        calls, asking = self._sent, self._asking
        answers = self._answers()
        for whole in (False, True):
            lost = [at for at, answer in enumerate(answers) if code_of_answer(answer) == "NOSCRIPT"]
            if not lost:
                break
            if not whole:
                self._load()
            self._put([calls[at] for at in lost], asking=asking, whole=whole)
            for at, answer in zip(lost, self._answers(), strict=True):
                answers[at] = answer
        return answers

    def close(self) -> None:
        """Close it, whatever state it is in."""
        with contextlib.suppress(driver().RedisError, OSError):
            self._connection.disconnect()

    def _put(self, calls: Sequence[Call], *, asking: bool, whole: bool = False) -> None:
        self._sent, self._asking = calls, asking
        words = [self._words(call, whole=whole) for call in calls]
        self._write([each for one in words for each in (("ASKING",), one)] if asking else words)

    def _answers(self) -> list[Answer]:
        count = len(self._sent)
        return self._read(2 * count)[1::2] if self._asking else self._read(count)

    def _words(self, call: Call, *, whole: bool) -> tuple[Word, ...]:
        if not call.script:
            return (*call.name.split(" "), *call.keys, *call.args)
        digest, text = scripts()[call.name]
        told = (self.state.run_id, int(self.state.restartable))
        script = ("EVAL", text) if whole else ("EVALSHA", digest)
        return (*script, len(call.keys), *call.keys, *told, *call.args)

    def _load(self) -> None:
        self._write([("SCRIPT", "LOAD", text) for _, text in scripts().values()])
        for answer in self._read(len(scripts())):
            if isinstance(answer, Exception):
                raise answer

    def _look(self) -> None:
        """Ask the server what it is; it may forbid to be asked."""
        self._write(
            [("INFO", "server"), ("INFO", "replication")]
            + [("CONFIG", "GET", name) for name in SETTINGS]
        )
        server, replication, *settings = self._read(2 + len(SETTINGS))
        if code_of_answer(server) == "NOAUTH":
            raise cast("Exception", server)
        self.state = state_of(server, replication, settings)
        self._looked = self._clock.elapsed()
        self.state.check(self._name)
        if self.state.role == "slave":
            raise driver().exceptions.ReadOnlyError(f"{self._name} is a replica")
        self._examine(self.state)

    def _write(self, commands: Sequence[tuple[Word, ...]]) -> None:
        said = memoryview(packed(commands))
        # The driver gives each part its time: whoever is slow with many bytes is not silent.
        parts = [said[at : at + _PART_BYTES] for at in range(0, len(said), _PART_BYTES)]
        self._connection.send_packed_command(parts, check_health=False)

    def _read(self, count: int) -> list[Answer]:
        answers: list[Answer] = []
        for _ in range(count):
            try:
                answer = self._connection.read_response(disable_decoding=True)
                answers.append(cast("Reply", answer))
            except driver().ResponseError as error:
                answers.append(error)
        return answers


class Servers:
    """The server or servers of a store, as one seat sees them. Connects when it is first needed.

    Args:
        address: where they are.
        timeout_seconds: how long each answer may take.
        examine: see `Link`.
        known: nodes of the cluster as anybody saw them last, for all seats of a store: those that
            the address names may be away.
    """

    def __init__(
        self, address: Address, *, timeout_seconds: float, examine: Examine, known: list[Place]
    ) -> None:
        self.address = address
        self._timeout = timeout_seconds
        self._examine = examine
        self._links: dict[Place | None, Link] = {}
        self._owners: list[tuple[int, int, Place]] = []
        self._known = known

    def send(self, calls: Sequence[Call]) -> list[Answer]:
        """Send each where its keys are and return the answers in order, errors among them.

        A server that cannot be reached, or is not one to be used, is the answer to what it was sent
        (which may have been done), and holds up the others only for as long as it is waited for.

        Raises:
            redis.RedisError: nobody tells which servers there are.
        """
        try:
            return self._exchanged(calls)
        except BaseException:
            # Answers that nobody has read would be taken for those to what is sent next.
            self.close()
            raise

    def _exchanged(self, calls: Sequence[Call]) -> list[Answer]:
        answers: list[Answer] = [[] if not call.keys else None for call in calls]
        asked: dict[int, Place | None] = {}
        for place, batch, found in self._asked_all(calls, self._batches(calls, answers)):
            asked |= dict.fromkeys(batch, place)
            for at, answer in zip(batch, found, strict=True):
                gathered = answers[at]
                if isinstance(gathered, list) and not isinstance(answer, Exception):
                    gathered.append(answer)
                elif not isinstance(gathered, Exception):
                    answers[at] = answer
        followed = [
            self._followed(call, answer, asked.get(at))
            for at, (call, answer) in enumerate(zip(calls, answers, strict=True))
        ]
        for at, answer in enumerate(followed):
            if code_of_answer(answer) in PASSING:
                self._drop(asked.get(at))
        return followed

    def _batches(
        self, calls: Sequence[Call], answers: list[Answer]
    ) -> dict[Place | None, list[int]]:
        """Which calls go where; the answer to one that can go nowhere is that."""
        everywhere = self._masters()
        batches: dict[Place | None, list[int]] = {}
        for at, call in enumerate(calls):
            try:
                for place in self._places(call, everywhere):
                    batches.setdefault(place, []).append(at)
            except driver().RedisError as error:
                answers[at] = error
        return batches

    def _asked_all(
        self, calls: Sequence[Call], batches: dict[Place | None, list[int]]
    ) -> Iterator[tuple[Place | None, list[int], Sequence[Answer]]]:
        """The answers of each server. Those that we are connected to go first: a connection that
        does not come about keeps none of them waiting.
        """
        there = [place for place in batches if place in self._links]
        for places in (there, [place for place in batches if place not in there]):
            failed = {
                place: self._sent(place, [calls[at] for at in batches[place]]) for place in places
            }
            for place in places:
                error, batch = failed[place], batches[place]
                yield place, batch, [error] * len(batch) if error else self._received(place, batch)

    def _sent(self, place: Place | None, calls: Sequence[Call]) -> Exception | None:
        """Send to a server; if that fails, how."""
        try:
            self._link(place).send(calls)
        except (driver().RedisError, StoreError, OSError) as error:
            self._drop(place)
            return cast("Exception", error)
        return None

    def _received(self, place: Place | None, batch: Sequence[int]) -> list[Answer]:
        """The answers of a server to what was sent to it; how that failed for each if it did."""
        try:
            return self._link(place).receive()
        except (driver().RedisError, StoreError, OSError) as error:
            self._drop(place)
            return [cast("Answer", error)] * len(batch)

    def _drop(self, place: Place | None) -> None:
        """The next `send` connects to it anew, after it has asked who has which slots."""
        self._owners = []
        link = self._links.pop(place, None)
        if link is not None:
            link.close()

    def states(self) -> list[ServerState]:
        """What the masters say of themselves."""
        return [self._link(place).state for place in self._masters()]

    def layout(self) -> list[tuple[Place | None, str, str]]:
        """Where the masters are, the run id of each, and the slots that it has, asked anew."""
        self.close()
        places = self._masters()
        slots = {place: [one[:2] for one in self._owners if one[2] == place] for place in places}
        return [(place, self._link(place).state.run_id, str(slots[place])) for place in places]

    def close(self) -> None:
        """Close all connections; the next `send` opens new ones."""
        links, self._links = self._links, {}
        self._owners = []
        for link in links.values():
            link.close()

    def _followed(self, call: Call, answer: Answer, asked: Place | None) -> Answer:
        """The answer, from where a cluster pointed us to if it did. A node that does not know its
        own name leaves it out: it is where it was asked.
        """
        code = code_of_answer(answer) if asked else ""
        if code not in {"MOVED", "ASK"} or asked is None:
            return answer
        host, _, port = str(answer).rpartition(" ")[2].rpartition(":")  # "MOVED slot host:port"
        place: Place | None = (host or asked[0], int(port))
        if code == "MOVED":
            self._owners = []
        try:
            if host == "?":
                place = self._owner(call.keys[0])
            return self._link(place).exchange([call], asking=code == "ASK")[0]
        except (driver().RedisError, StoreError, OSError) as error:
            self._drop(place)
            return cast("Answer", error)

    def _link(self, place: Place | None) -> Link:
        link = self._links.get(place)
        if link is None:
            where = place if place or self.address.kind == "cluster" else self._only()
            connection = self.address.connection(where, timeout_seconds=self._timeout)
            name = f"{where[0]}:{where[1]}" if where else self.address.name
            link = self._links[place] = Link(connection, name, self._examine)
        return link

    def _only(self) -> Place | None:
        return self.address.master(timeout_seconds=self._timeout)

    def _places(self, call: Call, everywhere: list[Place | None]) -> list[Place | None]:
        if call.keys:
            return [self._owner(call.keys[0])]
        return everywhere if call.at is None else [call.at]

    def _owner(self, key: str) -> Place | None:
        if self.address.kind != "cluster":
            return None
        slot = driver().crc.key_slot(key.encode())
        for first, last, place in self._map():
            if first <= slot <= last:
                return place
        self._owners = []
        raise driver().exceptions.ClusterDownError(f"slot {slot} is served by no node")

    def _masters(self) -> list[Place | None]:
        if self.address.kind != "cluster":
            return [None]
        return list(dict.fromkeys(place for _, _, place in self._map()))

    def _map(self) -> list[tuple[int, int, Place]]:
        """Which master has which slots, asked of any node that answers."""
        if not self._owners:
            problem: Exception = driver().ConnectionError("no node was named")
            for place in self._candidates():
                try:
                    self._owners = self._asked(place)
                    self._known[:] = [master for _, _, master in self._owners]
                    return self._owners
                except (driver().RedisError, OSError) as error:
                    problem = error
            raise problem
        return self._owners

    def _candidates(self) -> Iterable[Place]:
        return dict.fromkeys([*filter(None, self._links), *self.address.places, *self._known])

    def _asked(self, place: Place) -> list[tuple[int, int, Place]]:
        connection = self.address.connection(place, timeout_seconds=self._timeout)
        try:
            connection.connect()
            connection.send_packed_command([packed([("CLUSTER", "SLOTS")])], check_health=False)
            said = connection.read_response(disable_decoding=True)
        finally:
            connection.disconnect()
        found = slot_owners(said, asked=place)
        if not found:
            raise driver().exceptions.ClusterDownError(f"{place[0]} knows of no slots")
        return found


def code_of_answer(answer: Answer) -> str:
    """The word of an answer that is an error, else an empty text."""
    return code_of(answer) if isinstance(answer, Exception) else ""


@cache
def scripts() -> dict[str, tuple[str, bytes]]:
    """Digest and text of each script by name: what all share, then its own."""
    folder = files("agentkit.state.checkpoints.adapters").joinpath("_lua")
    shared = folder.joinpath("_common.lua").read_text(encoding="utf-8")
    found = {}
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        name = file.name.removesuffix(".lua")
        if name != file.name and not name.startswith("_"):
            text = (shared + file.read_text(encoding="utf-8")).encode()
            found[name] = (sha1(text, usedforsecurity=False).hexdigest(), text)
    return found
