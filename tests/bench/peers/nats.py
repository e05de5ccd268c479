"""NATS JetStream: a stream in files on one server, mirrored by another over a leaf connection.

The client here speaks the few lines of its protocol that are needed. It publishes with a window of
entries that are not acknowledged yet. The time ends when the mirror has all.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.peers.programs import connected, kept, missing_program
from tests.support.ports import reserved_port

INSTALL = "the program nats-server, 2.2 or newer"
COMMANDS = (
    "nats-server -c A (jetstream domain hub, leafnodes listen); nats-server -c B (jetstream domain "
    "leaf, a remote to A); a stream S in files at A, a mirror of it at B",
    "PUB s ... at A in a window, each acknowledged, until the mirror has the count",
)
PIECE_BYTES = 1 << 18
PIECE_ENTRIES = 500
ENTRY_HEAD_BYTES = 60  # only decides how many are sent together
WINDOW_MIN = 2000
SETTLE_TRIES = 100
TRY_SECONDS = 0.1
LOOK_SECONDS = 0.003
SEQUENCE_KEY = b'"seq":'  # one in each acknowledgement


def missing() -> str | None:
    """The reason why NATS cannot run here; None when it can."""
    return missing_program("nats-server")


def rate(folder: Path, size: int, count: int) -> dict[str, float]:
    """From the first entry sent to the last one in the mirror: `excerpts_per_s`."""
    with _servers(folder) as (hub, leaf):
        near, far = Client(hub), Client(leaf)
        subjects = {"name": "S", "subjects": ["s"], "storage": "file"}
        near.settle("$JS.hub.API.STREAM.CREATE.S", subjects)
        origin = {"name": "S", "external": {"api": "$JS.hub.API", "deliver": ""}}
        far.settle(
            "$JS.leaf.API.STREAM.CREATE.M", {"name": "M", "storage": "file", "mirror": origin}
        )
        publisher = Publisher(hub, size)
        publisher.publish(1)
        _wait_for(far, 1)
        began = time.perf_counter()
        sent = publisher.publish(count)
        _wait_for(far, 1 + sent)
        return {"excerpts_per_s": sent / (time.perf_counter() - began)}


class Client:
    """Asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self._connection = connected(port)
        self._read = self._connection.makefile("rb")
        self._connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answer 1\r\n')

    def settle(self, subject: str, body: dict[str, Any]) -> None:
        """Asks until it is granted: servers need a while until they know each other."""
        for _ in range(SETTLE_TRIES):
            answer = self.ask(subject, body)
            if answer is not None and "error" not in answer:
                return
            time.sleep(TRY_SECONDS)
        raise RuntimeError(f"NATS did not grant {subject}: {answer}")

    def ask(self, subject: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer; None when none comes in time."""
        data = json.dumps(body).encode()
        self._connection.sendall(
            b"PUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(data), data)
        )
        self._connection.settimeout(2)
        try:
            while line := self._read.readline():
                if line.startswith(b"PING"):
                    self._connection.sendall(b"PONG\r\n")
                if line.startswith(b"MSG"):
                    found: dict[str, Any] = json.loads(self._read.read(int(line.split()[-1]) + 2))
                    return found
        except TimeoutError:
            # a reader that ran into a time limit cannot be used any more
            self._read = self._connection.makefile("rb")
        return None


class Publisher:
    """Sends entries to the stream, some ahead of what is acknowledged."""

    def __init__(self, port: int, size: int) -> None:
        self._connection = connected(port)
        self._connection.sendall(b'CONNECT {"verbose":false}\r\nSUB taken 1\r\n')
        self._entry = b"PUB s taken %d\r\n%s\r\n" % (size, b"x" * size)
        self._together = max(1, min(PIECE_ENTRIES, PIECE_BYTES // (size + ENTRY_HEAD_BYTES)))

    def publish(self, count: int) -> int:
        """Returns when all are acknowledged; how many that were."""
        together = min(self._together, count)
        piece, total = self._entry * together, count // together * together
        window = max(4 * together, WINDOW_MIN)
        sent = acknowledged = 0
        rest = b""
        while acknowledged < total:
            while sent < total and sent - acknowledged < window:
                self._connection.sendall(piece)
                sent += together
            answers = rest + self._connection.recv(PIECE_BYTES)
            found = answers.count(SEQUENCE_KEY)
            acknowledged += found
            # a key may be cut in two: its first bytes are looked at again with the rest of it
            rest = answers[answers.rfind(SEQUENCE_KEY) + len(SEQUENCE_KEY) :] if found else answers
            rest = rest[-len(SEQUENCE_KEY) + 1 :]
        return total


def _wait_for(mirror: Client, count: int) -> None:
    while True:
        answer = mirror.ask("$JS.leaf.API.STREAM.INFO.M", {})
        if answer is not None and answer.get("state", {}).get("messages", 0) >= count:
            return
        time.sleep(LOOK_SECONDS)


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[int, int]]:
    """Ports of a hub and of a leaf that is connected to it."""
    hub, leaf, between = reserved_port(), reserved_port(), reserved_port()
    place = kept(folder, f"nats-{hub}")
    texts = {
        "hub": f"listen: 127.0.0.1:{hub}\nleafnodes {{ listen: 127.0.0.1:{between} }}",
        "leaf": f"listen: 127.0.0.1:{leaf}\n"
        f'leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:{between}" }} ] }}',
    }
    servers = []
    try:
        for name, text in texts.items():
            store = f'jetstream {{ store_dir: "{place / name}", domain: {name}, max_file: 20G }}'
            settings = place / f"{name}.conf"
            settings.write_text(f"server_name: {name}\n{text}\n{store}\n")
            command = ["nats-server", "-c", str(settings)]
            servers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        yield hub, leaf
    finally:
        for server in servers:
            server.kill()
            server.wait()
