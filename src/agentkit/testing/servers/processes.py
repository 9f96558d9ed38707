"""A server's process: surely gone in the end, and killed whole when it is killed."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agentkit.core.contracts.errors import AgentkitError

__all__ = ["ServerFailed", "ServerProcess", "make_folder", "run_tool", "unprivileged", "wait_until"]

_KEEPER = Path(__file__).with_name("_keeper.py")
_START_SECONDS = 60.0
_POLL_SECONDS = 0.01
_LOG_CHARACTERS = 4000


class ServerFailed(AgentkitError):
    """A server did not start, did not get ready, or did not end. The message has its last words."""


class ServerProcess:
    """A running server. Its end is the end of all that it forked.

    Args:
        command: the program, by its full path, and its arguments.
        folder: where it works and keeps its `log`. Removed if the calling process dies.
        farewell: the signal it is sent first, if the calling process dies.

    Raises:
        ServerFailed: it could not be started.
    """

    def __init__(
        self, command: Sequence[str], *, folder: Path, farewell: int = signal.SIGTERM
    ) -> None:
        user = unprivileged()
        uid, gid = (-1, -1) if user is None else (user.pw_uid, user.pw_gid)
        order = map(str, (os.getpid(), folder, int(farewell), uid, gid))
        self._folder = folder
        self._keeper = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", str(_KEEPER), *order, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._read_pid()

    @property
    def alive(self) -> bool:
        """Whether anything of it still runs."""
        return self._keeper.poll() is None

    @property
    def log(self) -> str:
        """The last words of the server."""
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / "log").read_text(errors="replace")[-_LOG_CHARACTERS:]
        return ""

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs. SIGKILL strikes it and all that it forked."""
        if self._keeper.stdin is None:
            raise AssertionError("the keeper has no stdin")
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._keeper.stdin.write(b"%d\n" % number)
            self._keeper.stdin.flush()

    def wait(self, *, seconds: float = 60.0) -> int:
        """Wait until all of it is gone; returns its exit status, 128 + the signal that ended it.

        Raises:
            ServerFailed: it is still there.
        """
        try:
            status = self._keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ServerFailed(
                f"server {self.pid} did not end in {seconds:g} s: {self.log}"
            ) from None
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return status

    def kill(self) -> None:
        """SIGKILL it with all that it forked, and wait until nothing of it is left."""
        self.signal(signal.SIGKILL)
        self.wait()

    def _read_pid(self) -> int:
        if self._keeper.stdout is None:
            raise AssertionError("the keeper has no stdout")
        ready, _, _ = select.select([self._keeper.stdout], [], [], _START_SECONDS)
        line = self._keeper.stdout.readline() if ready else b""
        if not line:
            self._keeper.kill()
            raise ServerFailed(f"the keeper of a server did not start it in {self._folder}")
        return int(line)


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    server: ServerProcess | None = None,
    seconds: float = 60.0,
) -> None:
    """Wait until a condition holds.

    Args:
        condition: asked again and again.
        what: the condition in words, for the error.
        server: whose end would make waiting useless.
        seconds: the longest wait.

    Raises:
        ServerFailed: it did not come to hold, or the server ended before.
    """
    until = time.monotonic() + seconds  # noqa: TID251 - servers of their own live in real time
    while not condition():
        gone = server is not None and not server.alive
        if gone or time.monotonic() > until:  # noqa: TID251 - as above
            why = "the server ended" if gone else f"not within {seconds:g} s"
            raise ServerFailed(f"{what}: {why}. {'' if server is None else server.log}")
        time.sleep(_POLL_SECONDS)  # noqa: TID251 - as above


def unprivileged() -> pwd.struct_passwd | None:
    """Who runs the servers: None means this process's own user, who is not root.

    Postgres and PgBouncer refuse to run as root.
    """
    if os.geteuid():
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerFailed("servers do not run as root, and there is no user 'nobody' to run them")


def make_folder(kind: str) -> Path:
    """A new folder that the servers' user owns, and whose parents this user may pass."""
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - mkdtemp
    user = unprivileged()
    if user is not None:
        places = [place for place in places if all(p.stat().st_mode & 1 for p in _chain(place))]
    folder = Path(tempfile.mkdtemp(prefix=f"agentkit-{kind}-", dir=places[0]))
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


def run_tool(command: Sequence[str], *, seconds: float = 120.0) -> str:
    """Run a program as the servers' user to its end; returns what it printed.

    Raises:
        ServerFailed: it failed.
    """
    user = unprivileged()
    try:
        done = subprocess.run(  # noqa: S603 - programs of the servers
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd="/",
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else (),
        )
    except subprocess.TimeoutExpired:
        raise ServerFailed(f"{command[0]} did not end within {seconds:g} s") from None
    except OSError as exc:
        raise ServerFailed(f"{command[0]} cannot be run by the servers' user: {exc}") from exc
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-_LOG_CHARACTERS:]
        raise ServerFailed(f"{Path(command[0]).name} failed ({done.returncode}): {said}")
    return done.stdout


def _chain(place: Path) -> list[Path]:
    place = place.resolve()
    return [place, *place.parents]
