"""Redis streams from a primary to its replica: nothing is written to disk, which is its best case,
but for where both sync all.

Entries are added in a pipeline, encoded ahead of time. The time ends when the replica has all.
"""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.peers.programs import connected, kept, missing_program
from tests.support.ports import reserved_port

INSTALL = "the package redis-server"
COMMANDS = (
    'redis-server --port A --save "" --appendonly no --client-output-buffer-limit "replica 0 0 0" '
    "--repl-diskless-sync-delay 0",
    "the same with --port B --replicaof 127.0.0.1 A; XADD s * d PAYLOAD in a pipeline at A until "
    "XLEN s at B has the count",
    "for waits: each client sends XADD and WAIT 1 0 together; for tasks both servers have "
    "--appendonly yes --appendfsync always",
)
SYNCED = ("--appendonly", "yes", "--appendfsync", "always")
PIECE_BYTES = 1 << 20
PIECE_ENTRIES = 2000
ENTRY_HEAD_BYTES = 60  # about what a command adds: only decides how many go together
LOOK_SECONDS = 0.002


def missing() -> str | None:
    """The reason why Redis cannot run here; None when it can."""
    return missing_program("redis-server")


def rate(folder: Path, size: int, count: int) -> dict[str, float]:
    """From the first command sent to the last entry readable at the replica: `excerpts_per_s`."""
    with _pair(folder) as (primary, replica):
        together = max(1, min(PIECE_ENTRIES, PIECE_BYTES // (size + ENTRY_HEAD_BYTES)))
        pieces = max(1, count // together)
        piece = _encoded("XADD", "s", "*", "d", b"x" * size) * together
        count = pieces * together
        drain = threading.Thread(target=_take_answers, args=(primary, count))
        began = time.perf_counter()
        drain.start()
        for _ in range(pieces):
            primary.sendall(piece)
        drain.join()
        while _asked(replica, "XLEN", "s") != b":%d\r\n" % count:
            time.sleep(LOOK_SECONDS)
        return {"excerpts_per_s": count / (time.perf_counter() - began)}


def waited_rate(
    folder: Path, size: int, clients: int, seconds: int, *, synced: bool = False
) -> float:
    """Entries a second, by so many clients that each wait (`WAIT 1`) until the replica has their
    own: in its memory.

    Args:
        synced: both servers sync what they have taken before they answer.
    """
    counts = [0] * clients
    with _pair(folder, SYNCED if synced else ()) as (primary, _):
        port = primary.getpeername()[1]
        end = time.monotonic() + seconds

        def client(nth: int) -> None:
            both = _encoded("XADD", "s", "*", "d", b"x" * size) + _encoded("WAIT", "1", "0")
            with connected(port) as server, server.makefile("rb") as answers:
                while time.monotonic() < end:
                    server.sendall(both)
                    answers.readline(), answers.readline()  # the id of the entry
                    if answers.readline() != b":1\r\n":
                        raise RuntimeError("one replica expected to have it")
                    counts[nth] += 1

        threads = [threading.Thread(target=client, args=(nth,)) for nth in range(clients)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    return sum(counts) / seconds


def waits_us(folder: Path, size: int, count: int) -> list[float]:
    """The times of entries of one client that waits for each until the replica has it, in its
    memory; the shortest first."""
    took = []
    with _pair(folder) as (primary, _), primary.makefile("rb") as answers:
        both = _encoded("XADD", "s", "*", "d", b"x" * size) + _encoded("WAIT", "1", "0")
        for _ in range(count):
            began_ns = time.monotonic_ns()
            primary.sendall(both)
            answers.readline(), answers.readline()  # the id of the entry
            if answers.readline() != b":1\r\n":
                raise RuntimeError("one replica expected to have it")
            took.append((time.monotonic_ns() - began_ns) / 1e3)
    return sorted(took)


@contextmanager
def _pair(
    folder: Path, options: Sequence[str] = ()
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Connections to a primary and to its replica, once that is in step."""
    ports = reserved_port(), reserved_port()
    servers = [_server(folder, ports[0], *options)]
    try:
        of = ("--replicaof", "127.0.0.1", str(ports[0]))
        servers.append(_server(folder, ports[1], *options, *of))
        with connected(ports[0]) as primary, connected(ports[1]) as replica:
            # the link is said to be up before it streams: the primary knows better
            while b"state=online" not in _asked(primary, "INFO", "replication"):
                time.sleep(LOOK_SECONDS)
            yield primary, replica
    finally:
        for server in servers:
            server.kill()
            server.wait()


def _server(folder: Path, port: int, *options: str) -> subprocess.Popen[bytes]:
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--appendonly", "no", "--dir", str(kept(folder, f"redis-{port}"))]
    command += ["--client-output-buffer-limit", "replica 0 0 0", "--repl-diskless-sync-delay", "0"]
    return subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)


def _take_answers(primary: socket.socket, count: int) -> None:
    """Takes an id for each entry; each has one dash."""
    while count > 0:
        count -= primary.recv(PIECE_BYTES).count(b"-")


def _encoded(*words: str | bytes) -> bytes:
    raw = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in raw)


def _asked(server: socket.socket, *words: str) -> bytes:
    server.sendall(_encoded(*words))
    return server.recv(PIECE_BYTES)
