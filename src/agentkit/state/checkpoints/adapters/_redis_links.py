"""Connections to Redis servers, with our scripts in them, and who of them has which keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple, TypeAlias, cast

from agentkit.core.contracts.errors import StoreError, StoreUnreachable
from agentkit.core.runtime.clock import SystemClock
from agentkit.state.checkpoints.adapters._redis_address import Address, Place, Wire
from agentkit.state.checkpoints.adapters._redis_errors import code_of, driver

Word: TypeAlias = "str | bytes | int"
Reply: TypeAlias = "bytes | int | list[Reply] | None"
Answer: TypeAlias = "Reply | Exception"

OLDEST_SERVER = (6, 2)
"""The first Redis that has what the scripts and lists use."""

SETTINGS_SECONDS = 60.0
"""How long what a server says of its settings is believed."""

_PART_BYTES = 65_536
_SETTINGS = ("appendonly", "appendfsync", "maxmemory-policy", "save")


class Call(NamedTuple):
    """A command or a script for the server that has `keys`; without keys, for every master."""

    name: str
    keys: tuple[str, ...] = ()
    args: tuple[Word, ...] = ()
    script: bool = False


class ServerState(NamedTuple):
    """What a server says of itself; an empty text where it does not.

    Args:
        version: like `7.0.15`.
        run_id: another one each time its process starts.
        role: `master` or `slave`.
        replicas: how many follow it.
        settings: those that decide what it keeps, by name.
    """

    version: str = ""
    run_id: str = ""
    role: str = ""
    replicas: int = 0
    settings: tuple[tuple[str, str], ...] = ()

    def setting(self, name: str) -> str:
        """The setting of that name."""
        return dict(self.settings).get(name, "")

    @property
    def restartable(self) -> bool:
        """Whether all that it acknowledged is on its disk."""
        return self.setting("appendonly") == "yes" and self.setting("appendfsync") == "always"

    def check(self, name: str) -> None:
        """Return if the server has what a store needs.

        Raises:
            StoreError: it is too old.
        """
        version = tuple(int(part) for part in self.version.split(".")[:2] if part.isdecimal())
        if version and version < OLDEST_SERVER:
            raise StoreError(
                f"the Redis at {name} is version {self.version}; a store needs 6.2 or later, or a "
                f"Valkey. Nothing was written."
            )


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
        self._sent, self._asking = calls, asking
        words = [self._words(call) for call in calls]
        self._write([each for one in words for each in (("ASKING",), one)] if asking else words)

    def receive(self) -> list[Answer]:
        """The second half: the answers. A script that the server has lost is brought again."""
        calls, asking = self._sent, self._asking
        answers = self._answers()
        lost = [at for at, answer in enumerate(answers) if code_of_answer(answer) == "NOSCRIPT"]
        if lost:
            self._load()
            self.send([calls[at] for at in lost], asking=asking)
            for at, answer in zip(lost, self._answers(), strict=True):
                answers[at] = answer
        return answers

    def close(self) -> None:
        """Close it, whatever state it is in."""
        with contextlib.suppress(driver().RedisError, OSError):
            self._connection.disconnect()

    def _answers(self) -> list[Answer]:
        count = len(self._sent)
        return self._read(2 * count)[1::2] if self._asking else self._read(count)

    def _words(self, call: Call) -> tuple[Word, ...]:
        if not call.script:
            return (*call.name.split(" "), *call.keys, *call.args)
        digest, _ = scripts()[call.name]
        told = (self.state.run_id, int(self.state.restartable))
        return ("EVALSHA", digest, len(call.keys), *call.keys, *told, *call.args)

    def _load(self) -> None:
        self._write([("SCRIPT", "LOAD", text) for _, text in scripts().values()])
        for answer in self._read(len(scripts())):
            if isinstance(answer, Exception):
                raise answer

    def _look(self) -> None:
        """Ask the server what it is; it may forbid to be asked."""
        self._write(
            [("INFO", "server"), ("INFO", "replication")]
            + [("CONFIG", "GET", name) for name in _SETTINGS]
        )
        server, replication, *settings = self._read(2 + len(_SETTINGS))
        if code_of_answer(server) == "NOAUTH":
            raise cast("Exception", server)
        about = _fields(server) | _fields(replication)
        found = [
            (name, cast("bytes", answer[1]).decode())
            for name, answer in zip(_SETTINGS, settings, strict=True)
            if isinstance(answer, list) and len(answer) > 1
        ]
        self.state = ServerState(
            version=about.get("redis_version", ""),
            run_id=about.get("run_id", ""),
            role=about.get("role", ""),
            replicas=int(about.get("connected_slaves", "0")),
            settings=tuple(found),
        )
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
    """

    def __init__(self, address: Address, *, timeout_seconds: float, examine: Examine) -> None:
        self.address = address
        self._timeout = timeout_seconds
        self._examine = examine
        self._links: dict[Place | None, Link] = {}
        self._owners: list[tuple[int, int, Place]] = []

    def send(self, calls: Sequence[Call]) -> list[Answer]:
        """Send each where its keys are and return the answers in order, errors among them.

        Raises:
            StoreError: a server is not one to be used.
            redis.RedisError: a server cannot be reached; what was sent may have been done.
        """
        try:
            return self._exchanged(calls)
        except BaseException:
            # Answers that nobody has read would be taken for those to what is sent next.
            self.close()
            raise

    def _exchanged(self, calls: Sequence[Call]) -> list[Answer]:
        everywhere = self._masters()
        batches: dict[Place | None, list[int]] = {}
        for at, call in enumerate(calls):
            for place in [self._owner(call.keys[0])] if call.keys else everywhere:
                batches.setdefault(place, []).append(at)
        links = {place: self._link(place) for place in batches}
        for place, batch in batches.items():
            links[place].send([calls[at] for at in batch])
        answers: list[Answer] = [[] if not call.keys else None for call in calls]
        for place, batch in batches.items():
            for at, answer in zip(batch, links[place].receive(), strict=True):
                gathered = answers[at]
                if isinstance(gathered, list) and not isinstance(answer, Exception):
                    gathered.append(answer)
                elif not isinstance(gathered, Exception):
                    answers[at] = answer
        return [self._followed(call, answer) for call, answer in zip(calls, answers, strict=True)]

    def states(self) -> list[ServerState]:
        """What the masters say of themselves."""
        return [self._link(place).state for place in self._masters()]

    def close(self) -> None:
        """Close all connections; the next `send` opens new ones."""
        links, self._links = self._links, {}
        self._owners = []
        for link in links.values():
            link.close()

    def _followed(self, call: Call, answer: Answer) -> Answer:
        """The answer, from where a cluster pointed us to if it did."""
        code = code_of_answer(answer) if self.address.kind == "cluster" else ""
        if code not in {"MOVED", "ASK"}:
            return answer
        host, _, port = str(answer).rpartition(" ")[2].rpartition(":")  # "MOVED slot host:port"
        place = (host, int(port))
        if code == "MOVED":
            self._owners = []
        return self._link(place).exchange([call], asking=code == "ASK")[0]

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
                    return self._owners
                except (driver().RedisError, OSError) as error:
                    problem = error
            raise problem
        return self._owners

    def _candidates(self) -> Iterable[Place]:
        return dict.fromkeys([*filter(None, self._links), *self.address.places])

    def _asked(self, place: Place) -> list[tuple[int, int, Place]]:
        connection = self.address.connection(place, timeout_seconds=self._timeout)
        try:
            connection.connect()
            connection.send_packed_command([packed([("CLUSTER", "SLOTS")])], check_health=False)
            said = connection.read_response(disable_decoding=True)
        finally:
            connection.disconnect()
        found = []
        for first, last, (host, port, *_), *_ in cast("list[tuple[int, int, list[bytes]]]", said):
            found.append((first, last, (host.decode() or place[0], int(port))))
        if not found:
            raise driver().exceptions.ClusterDownError(f"{place[0]} knows of no slots")
        return found


def packed(commands: Sequence[Sequence[Word]]) -> bytes:
    """Commands as the protocol has them; the driver takes several times as long over it."""
    parts: list[bytes] = []
    for words in commands:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            said = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(said), said, b"\r\n")
    return b"".join(parts)


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


def refuse_unsafe(state: ServerState) -> None:
    """Raise where a server may lose what it acknowledged; see `strict` of the store."""
    wrong = [
        f"{name} is {state.setting(name) or 'not told'}, not {wanted}"
        for name, wanted in (
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory-policy", "noeviction"),
        )
        if state.setting(name) != wanted
    ]
    if wrong:
        raise StoreUnreachable(
            f"the Redis is refused, since it may lose what it has acknowledged and strict is set: "
            f"{'; '.join(wrong)}. Set it with CONFIG SET and in redis.conf, or leave strict off."
        )


def _fields(answer: Answer) -> dict[str, str]:
    """The fields of an INFO, none where it was refused."""
    if not isinstance(answer, bytes):
        return {}
    lines = answer.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
