"""Java Chronicle for tests: one process that answers commands on queues, and replication peers.

The programs are in tools/java; Maven builds them when a test first needs them. `JavaQueue` keeps
one Java process and sends it JSON lines: a call costs milliseconds instead of a start of Java.
`JavaPeer` is one source or sink on Chronicle-Network. Both collect output in threads, so a caller
never blocks on a full pipe, and both end with `close` or `stop`, best through `with`.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from tests.support.javabuild import (
    JAVA_FLAGS,
    java_missing,
    peer_classpath,
    queue_jar,
    require_java,
)

__all__ = [
    "JAVA_FLAGS",
    "Answer",
    "JavaEndedError",
    "JavaPeer",
    "JavaQueue",
    "Line",
    "PeerEvent",
    "java_missing",
    "peer_classpath",
    "queue_jar",
    "require_java",
    "run_network",
]

JVM_OPTIONS = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

END_TIMEOUT_S = 60
STDERR_SHOWN_CHARS = 4000

Line = dict[str, Any]


class JavaEndedError(Exception):
    """The Java process ended while a test waited for it."""


# ---------------------------------------------------------------- queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of one command: exit code, lines, and the exception if one ended it."""

    exit: int
    lines: list[Line]
    error: str | None
    stderr: str


class JavaQueue:
    """One Java process that runs commands on queues (tools/java/README.md lists them).

    `props` hold for every call. `interop.blockSize` is 64 KiB unless named otherwise: without it
    Java lets each file grow to 80 MiB. Concurrent calls on one directory share a process id; to
    have two processes on a queue, start two of these.
    """

    def __init__(
        self, *, props: Mapping[str, object] | None = None, java_options: Sequence[str] = ()
    ) -> None:
        self._props = {"interop.blockSize": "65536", **(props or {})}
        command = ["java", *JVM_OPTIONS, *java_options, "-jar", str(queue_jar()), "serve"]
        self._open, self._process, self._stderr = _start(command, stdin=subprocess.PIPE)
        self._lock = threading.Lock()  # around the next two
        self._next_id = 0
        self._pending: dict[int, Future[Answer]] = {}
        self._send_lock = threading.Lock()  # apart: a full pipe must not stop the reader
        self._reader = threading.Thread(target=self._read_answers, name="java answers", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(
        self,
        command: str,
        *args: object,
        props: Mapping[str, object] | None = None,
        stdin: Iterable[str] | None = None,
        out: Path | None = None,
    ) -> Future[Answer]:
        """Sends a command; its answer comes later. `out` takes the lines in place of the answer."""
        merged = {**self._props, **(props or {})}
        request: dict[str, object] = {
            "command": command,
            "args": [str(arg) for arg in args],
            "props": {name: _prop_text(value) for name, value in merged.items()},
            "stdin": list(stdin or ()),
        }
        if out is not None:
            request["out"] = str(out)
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._process.poll() is not None:
                raise JavaEndedError(self._obituary())
            self._next_id += 1
            request["id"] = self._next_id
            self._pending[self._next_id] = future
        self._send(request)
        return future

    def call(
        self,
        command: str,
        *args: object,
        props: Mapping[str, object] | None = None,
        stdin: Iterable[str] | None = None,
        out: Path | None = None,
        timeout: float = 300,
    ) -> Answer:
        """Runs a command and waits for its answer; TimeoutError leaves it running in Java."""
        return self.start(command, *args, props=props, stdin=stdin, out=out).result(timeout)

    def close(self) -> None:
        """Ends the process; what still runs in it is cut off."""
        if self._process.poll() is None:
            self._send({"command": "quit"})
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()

    def kill(self) -> None:
        """Kills the process with SIGKILL: locks that it holds stay behind."""
        self._process.kill()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _send(self, request: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        # a broken pipe: it has ended, and the reader tells each waiting caller
        with self._send_lock, contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            answer = json.loads(text)
            with self._lock:
                future = self._pending.pop(answer["id"], None) if answer["id"] else None
            if future is not None:
                future.set_result(
                    Answer(
                        exit=answer["exit"],
                        lines=answer["lines"],
                        error=answer.get("error"),
                        stderr=answer["stderr"],
                    )
                )
        self._process.wait()
        with self._lock:
            abandoned = list(self._pending.values())
            self._pending.clear()
        for future in abandoned:
            future.set_exception(JavaEndedError(self._obituary()))

    def _obituary(self) -> str:
        return f"java ended with code {self._process.returncode}: {_shown(self._stderr)}"

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        _close(self._open)


def _prop_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---------------------------------------------------------------- peers


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEvent:
    """One line of a peer: milliseconds since its start, a name, and values as printed."""

    ms: int
    name: str
    values: dict[str, str]


class JavaPeer:
    """One source or sink on the real Chronicle-Network.

    Options are those of tools/java/README.md with underscores, `True` for a bare flag:
    `JavaPeer(role="sink", queue=path, connect="127.0.0.1:7001", local_id=2, remote_id=1)`.
    """

    def __init__(self, *, java_options: Sequence[str] = (), **options: object) -> None:
        command = _network_command("Peer", *_option_words(options), java_options=java_options)
        self._open, self._process, self._stderr = _start(command, stdin=subprocess.DEVNULL)
        self._changed = threading.Condition()
        self._events: list[PeerEvent] = []
        self._other_lines: list[str] = []
        self._has_ended = False
        self._reader = threading.Thread(target=self._read_events, name="peer events", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def events(self, name: str | None = None) -> list[PeerEvent]:
        with self._changed:
            return [event for event in self._events if name in (None, event.name)]

    def stderr_text(self) -> str:
        """The end of what the framework printed on standard error: refused input shows up there."""
        return _shown(self._stderr)

    def wait_for(self, name: str, timeout: float = 120, *, count: int = 1) -> PeerEvent:
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._nth(name, count), timeout)
            found = self._nth(name, count)
            if found is not None:
                return found
            story = "\n".join(str(event) for event in self._events[-20:])
            if self._has_ended:
                raise JavaEndedError(f"ended before {name}:\n{story}\n{self.stderr_text()}")
            raise TimeoutError(f"no {name} within {timeout} s:\n{story}\n{self.stderr_text()}")

    def exit_code(self, timeout: float = 300) -> int:
        """Waits for the peer to end by itself: 0 when what it expected has happened."""
        code = self._process.wait(timeout)
        self._reader.join()
        return code

    def stop(self, *, hard: bool = False) -> int:
        """Ends the peer with SIGTERM (SIGKILL if `hard`); its exit code."""
        if hard:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        self._reader.join()
        _close(self._open)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _nth(self, name: str, count: int) -> PeerEvent | None:
        found = [event for event in self._events if event.name == name]
        return found[count - 1] if len(found) >= count else None

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            event = _parse_event(text)
            with self._changed:
                if event is None:
                    self._other_lines.append(text)
                else:
                    self._events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


def _parse_event(text: str) -> PeerEvent | None:
    words = text.split()
    if len(words) < 2 or not words[0].isdigit() or not words[1].isupper():
        return None
    pairs = (word.partition("=") for word in words[2:])
    return PeerEvent(
        ms=int(words[0]), name=words[1], values={key: value for key, _, value in pairs}
    )


def _option_words(options: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in options.items():
        if value is False or value is None:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def run_network(
    program: str, *args: object, stdin: str = "", timeout: float = 300, **options: object
) -> str:
    """Standard output of a short program of tools/java/network: `QueueTool` or `Decode`."""
    words = [*(str(arg) for arg in args), *_option_words(options)]
    run = subprocess.run(
        _network_command(program, *words),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"{program} ended with code {run.returncode}: {run.stderr}")
    return run.stdout


def _network_command(program: str, *words: str, java_options: Sequence[str] = ()) -> list[str]:
    flags = [*JVM_OPTIONS, f"@{JAVA_FLAGS}", *java_options, "-cp", peer_classpath()]
    return ["java", *flags, f"cqrepl.interop.net.{program}", *words]


# ---------------------------------------------------------------- both


def _start(
    command: Sequence[str], *, stdin: int
) -> tuple[contextlib.ExitStack, subprocess.Popen[str], IO[str]]:
    """A process, the file of its standard error, and what closes both."""
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        process = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
            )
        )
        return stack.pop_all(), process, stderr


def _close(stack: contextlib.ExitStack) -> None:
    with contextlib.suppress(BrokenPipeError):  # a last request that Java did not take
        stack.close()


def _shown(stderr: IO[str]) -> str:
    """The end of a standard error; opened anew, since the process shares its place in the file."""
    if stderr.closed:
        return ""
    path = Path(f"/proc/self/fd/{stderr.fileno()}")
    return path.read_text(errors="replace")[-STDERR_SHOWN_CHARS:].strip()
