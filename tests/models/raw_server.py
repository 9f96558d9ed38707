"""A server that sends exactly the bytes it is told to, for faults and for recorded answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

HOLD = object()
"""Step of an answer: send nothing more until the client hangs up."""
CLOSE = object()
"""Step of an answer: close the connection."""
PAUSE = object()
"""Step of an answer: let everybody read what was sent so far, before more comes."""
ENDLESS = object()
"""Step of an answer: send bytes without a line end until the client hangs up."""

Steps = Sequence[bytes | object]


@dataclass
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        """The decoded body."""
        return msgspec.json.decode(self.body, type=dict)


@dataclass
class RawServer:
    """Answers the n-th request with the n-th answer, and keeps what it received."""

    answers: list[Steps]
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection in a task that `close` waits for."""
        self.serving[asyncio.create_task(self._serve(reader, writer))] = writer

    async def close(self) -> None:
        """Hang up on everybody and wait until all is over."""
        for writer in self.serving.values():
            writer.close()
        await asyncio.gather(*self.serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._one(reader, writer):
                pass
        except ConnectionError:
            self.hung_up.set()
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except asyncio.IncompleteReadError:
            self.hung_up.set()
            return False
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append(Received(head[0].split(" ")[1], headers, body))
        steps = self.answers[len(self.received) - 1]
        for step in steps:
            if step is HOLD:
                await reader.read()
                self.hung_up.set()
                return False
            if step is CLOSE:
                return False
            if step is PAUSE:
                for _ in range(100):
                    await asyncio.sleep(0)
                continue
            while step is ENDLESS:
                writer.write(b"x" * 65536)
                await writer.drain()
            assert isinstance(step, bytes)
            writer.write(step)
            await writer.drain()
        return True


@asynccontextmanager
async def serving(*answers: Steps) -> AsyncIterator[RawServer]:
    """A server for these answers, on a free port of loopback."""
    raw = RawServer(list(answers))
    server = await asyncio.start_server(raw.handle, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        await raw.close()
        await server.wait_closed()


def whole(
    body: bytes | object,
    *,
    status: int = 200,
    content_type: str = "application/json",
    **headers: str,
) -> list[bytes]:
    """An answer of known length; a value that is not bytes goes as JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    named = {"content-type": content_type, "content-length": str(len(data))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return [f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode(), data]


def head(content_type: str = "text/event-stream") -> bytes:
    """The beginning of an answer in chunks."""
    return (
        f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode()


def chunk(data: bytes) -> bytes:
    """One chunk of an answer in chunks."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


END = chunk(b"")
"""The end of an answer in chunks, in order."""


def event(data: object) -> bytes:
    """One server-sent event."""
    text = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
    return b"data: " + text + b"\n\n"


def stream(*events: object) -> list[bytes]:
    """A whole stream of events."""
    return [head(), *(chunk(event(data)) for data in events), END]
