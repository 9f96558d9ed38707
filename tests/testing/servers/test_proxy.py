"""A proxy does to connections what networks do, and counts it."""

import socket
import threading
from collections.abc import Iterator
from typing import Self

import pytest

from agentkit.testing.servers import (
    CutRequest,
    Fault,
    HoldAnswer,
    LoseAnswer,
    LoseRequest,
    PostgresServer,
    Proxy,
    RedisServer,
    ServerFailed,
)
from agentkit.testing.servers.processes import wait_until


class Echo:
    """Answers each line with `ok:` and the line, and remembers what it got.

    It answers nothing more after the line `hold` until `go` is set.
    """

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.bytes = b""
        self.ended = 0
        self.go = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        threads = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            threads.append(threading.Thread(target=self._answer, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                rest = b""
                while piece := connection.recv(65_536):
                    self.bytes += piece
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        self.heard.append(line + b"\n")
                        if line == b"hold":
                            self.go.wait(60)
                        connection.sendall(b"ok:" + line + b"\n")
        except OSError:
            pass
        self.ended += 1


@pytest.fixture
def echo() -> Iterator[Echo]:
    """The server behind the proxy."""
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    """A proxy in front of it."""
    with Proxy(echo.port) as proxy:
        yield proxy


class Client:
    """A connection that sends lines and reads answers."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._lines = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self.socket.close()

    def say(self, line: bytes) -> bytes:
        """Send a line; returns the answer, nothing when the connection is cut before it."""
        try:
            self.socket.sendall(line)
            return self._lines.readline()
        except ConnectionError:
            return b""


def test_without_a_fault_everything_passes(proxy: Proxy) -> None:
    """Bytes pass in both directions, on several connections."""
    with Client(proxy.port) as one, Client(proxy.port) as other:
        said = [one.say(b"a\n"), other.say(b"b\n"), one.say(b"c" * 100_000 + b"\n")]

    assert [b"ok:a\n", b"ok:b\n", b"ok:" + b"c" * 100_000 + b"\n"] == said
    assert {} == proxy.struck


def test_a_lost_answer_is_one_to_a_request_that_was_served(echo: Echo, proxy: Proxy) -> None:
    """The server has acted on the request when the client's connection is cut; others go on."""
    proxy.fail_next(LoseAnswer(request=b"COMMIT"))

    with Client(proxy.port) as one, Client(proxy.port) as other:
        said = [one.say(b"BEGIN\n"), one.say(b"COMMIT\n"), other.say(b"BEGIN\n")]

    assert [b"ok:BEGIN\n", b"", b"ok:BEGIN\n"] == said
    assert [b"BEGIN\n", b"COMMIT\n", b"BEGIN\n"] == echo.heard
    assert {"LoseAnswer": 1} == proxy.struck


def test_a_lost_request_is_not_served(echo: Echo, proxy: Proxy) -> None:
    """The connection is cut before the server has seen the request."""
    proxy.fail_next(LoseRequest(request=b"COMMIT"))

    with Client(proxy.port) as client:
        said = [client.say(b"BEGIN\n"), client.say(b"COMMIT\n")]
    wait_until(lambda: echo.ended == 1, what="the server has seen the end")

    assert [b"ok:BEGIN\n", b""] == said
    assert [b"BEGIN\n"] == echo.heard
    assert {"LoseRequest": 1} == proxy.struck


def test_a_held_answer_never_comes(echo: Echo, proxy: Proxy) -> None:
    """The server acts, the connection stays open, and nothing comes back."""
    proxy.fail_next(HoldAnswer(request=b"COMMIT"))

    with Client(proxy.port) as client:
        client.socket.sendall(b"COMMIT\n")
        wait_until(lambda: echo.heard == [b"COMMIT\n"], what="the server has the request")
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)

    assert {"HoldAnswer": 1} == proxy.struck


@pytest.mark.parametrize("passed", range(7))
def test_a_request_is_cut_at_each_byte(echo: Echo, proxy: Proxy, passed: int) -> None:
    """The server gets just so many bytes; it answers only if they are all."""
    proxy.fail_next(CutRequest(after_bytes=passed))

    with Client(proxy.port) as client:
        assert b"" == client.say(b"COMMIT\n")

    assert {"CutRequest": 1} == proxy.struck
    wait_until(lambda: echo.bytes == b"COMMIT\n"[:passed], what="just so many bytes have passed")


@pytest.mark.parametrize("kind", [LoseAnswer, LoseRequest, HoldAnswer])
def test_a_fault_lets_pass_what_it_is_told_to_skip(
    proxy: Proxy, kind: type[LoseAnswer | LoseRequest | HoldAnswer]
) -> None:
    """The first matches pass; the connection does not count a match twice."""
    proxy.fail_next(kind(request=b"x", skip=2))

    with Client(proxy.port) as client:
        said = [client.say(line) for line in (b"x1\n", b"y\n", b"y\n", b"x2\n", b"y\n")]
        client.socket.sendall(b"x3\n")
        wait_until(lambda: bool(proxy.struck), what="the third match is struck")

    assert [b"ok:x1\n", b"ok:y\n", b"ok:y\n", b"ok:x2\n", b"ok:y\n"] == said
    assert {kind.__name__: 1} == proxy.struck


def test_a_match_is_found_across_two_pieces(echo: Echo, proxy: Proxy) -> None:
    """Bytes that arrive apart are matched together."""
    proxy.fail_next(LoseRequest(request=b"COMMIT"))

    with Client(proxy.port) as client:
        client.socket.sendall(b"COM")
        wait_until(lambda: echo.bytes == b"COM", what="the first piece has passed")
        assert b"" == client.say(b"MIT\n")

    assert {"LoseRequest": 1} == proxy.struck


def test_faults_strike_in_their_order_and_the_standing_one_after_them(proxy: Proxy) -> None:
    """Each of the queue strikes once; `always` strikes until it is taken back."""
    standing: Fault = LoseRequest(request=b"x")
    proxy.always(standing)
    proxy.fail_next(LoseAnswer(request=b"x"), HoldAnswer(request=b"y"))

    said = [_say_once(proxy, b"x\n") for _ in range(3)]
    proxy.always(None)
    proxy.clear_faults()
    said += [_say_once(proxy, b"x\n"), _say_once(proxy, b"y\n")]

    assert [b"", b"", b"", b"ok:x\n", b"ok:y\n"] == said
    assert {"LoseAnswer": 1, "LoseRequest": 2} == proxy.struck


def test_an_answer_is_lost_when_the_awaited_part_of_it_has_come(echo: Echo, proxy: Proxy) -> None:
    """Of several requests in one piece, the connection is cut at the answer that is named."""
    proxy.fail_next(LoseAnswer(request=b"a\n", answer=b"ok:c\n"))

    with Client(proxy.port) as client:
        client.socket.sendall(b"a\nhold\nc\n")
        wait_until(lambda: echo.heard == [b"a\n", b"hold\n"], what="the first answer is sent")
        assert b"ok:other\n" == _say_once(proxy, b"other\n")
        assert {} == proxy.struck
        echo.go.set()
        assert b"" == _rest(client.socket)

    assert [b"a\n", b"hold\n", b"other\n", b"c\n"] == echo.heard
    assert {"LoseAnswer": 1} == proxy.struck


def test_open_connections_are_cut(proxy: Proxy) -> None:
    """All of them end, each is counted, and new ones pass."""
    with Client(proxy.port) as one, Client(proxy.port) as other:
        assert b"ok:a\n" == one.say(b"a\n") == other.say(b"a\n")
        proxy.cut()
        assert b"" == one.say(b"b\n") == other.say(b"b\n")

    assert b"ok:c\n" == _say_once(proxy, b"c\n")
    assert {"Cut": 2} == proxy.struck


def test_a_silent_proxy_takes_everything_and_says_nothing(echo: Echo, proxy: Proxy) -> None:
    """Neither old nor new connections get an answer, or an end; later ones pass again."""
    with Client(proxy.port) as old:
        old.say(b"a\n")
        proxy.fall_silent()
        with Client(proxy.port) as new:
            for client in (old, new):
                client.socket.sendall(b"b\n")
                client.socket.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    client.socket.recv(1)
            proxy.pass_on()
            for client in (old, new):
                client.socket.settimeout(60)
                assert b"" == _rest(client.socket)

    assert b"ok:c\n" == _say_once(proxy, b"c\n")
    assert [b"a\n", b"c\n"] == echo.heard
    assert {"Silence": 2} == proxy.struck


def test_a_refusing_proxy_refuses_on_the_same_port_until_it_passes_on(proxy: Proxy) -> None:
    """Connections are refused by the kernel, as where nobody listens."""
    with Client(proxy.port) as client:
        client.say(b"a\n")
        proxy.refuse()
        assert b"" == client.say(b"b\n")
    with pytest.raises(ConnectionRefusedError):
        Client(proxy.port)
    proxy.pass_on()

    assert b"ok:c\n" == _say_once(proxy, b"c\n")
    assert {"Refusal": 2} == proxy.struck


def test_a_server_that_is_not_there_shows_as_a_cut_connection() -> None:
    """The proxy takes the connection and cuts it."""
    with Proxy(1) as proxy, Client(proxy.port) as client:
        assert b"" == client.say(b"a\n")


def test_the_answer_to_a_commit_is_lost(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    """What was committed is there, though nobody was told."""
    database = postgres_dsn.rpartition("/")[2]
    postgres_server.sql("CREATE TABLE t (n int)", database=database)
    with Proxy(postgres_server.port) as proxy:
        proxy.fail_next(LoseAnswer(request=b"COMMIT", answer=b"COMMIT"))
        with pytest.raises(ServerFailed, match="closed the connection"):
            postgres_server.sql(
                "BEGIN; INSERT INTO t VALUES (7); COMMIT", database=database, port=proxy.port
            )

        assert {"LoseAnswer": 1} == proxy.struck
    assert "7" == postgres_server.sql("SELECT n FROM t", database=database)


def test_the_answer_to_a_script_is_lost(redis_server: RedisServer, redis_url: str) -> None:
    """What a script wrote is there, though nobody was told."""
    with Proxy(redis_server.port) as proxy, Client(proxy.port) as client:
        proxy.fail_next(LoseAnswer(request=b"EVAL"))

        assert b"" == client.say(b"EVAL \"return redis.call('SET', 'k', '7')\" 0\r\n")
        assert {"LoseAnswer": 1} == proxy.struck
    assert "7" == redis_server.ask("GET", "k")


def _say_once(proxy: Proxy, line: bytes) -> bytes:
    with Client(proxy.port) as client:
        return client.say(line)


def _rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionError:
        return b""
