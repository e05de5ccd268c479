"""The socket at which a host is asked what it does, and the asking.

Theory of operation. A request is one line of JSON, `{"v": 1, "do": "status"}`, and so is the
answer: what was asked for, or `{"v": 1, "error": ...}`. What else than `status` can be asked is the
host's matter. Before a host is told what may take its time it is hailed (`{"do": "hail"}`), which
it answers at once: one that is stopped would do later what its operator has given up.

The socket's file belongs to its owner alone. A lock that the system gives back with the process's
end says whether a host lives: what a dead one has left is replaced, and of a living one nothing is
taken.
"""

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import trio

from cqrepl.net.rundirectory import NotOurs, lock_path, make_directory, socket_path

REQUEST_MAX: Final = 4096  # bytes
ANSWER_MAX: Final = 64 * 1024 * 1024
ASK_SECONDS: Final = 5.0  # for a request to come whole, and for an answer to be taken
HAIL_SECONDS: Final = 10.0  # for a host to answer a hail
ASKING_MAX: Final = 16  # at a time
ROOM_SECONDS: Final = 0.05  # until it is looked again whether a host lets one more in
FORM: Final = 1
TELL_SECONDS: Final = 300.0  # for a host to do what it is told
Values = dict[str, object]
Answer = Callable[[], Values]
Do = Callable[[Values], Awaitable[Values]]
_logger: Final = logging.getLogger(__name__)


class NotThere(Exception):
    """No host answers at this socket."""


class Silent(NotThere):
    """A process has the socket and does not answer: it is stopped, or has too few descriptors."""


@asynccontextmanager
async def asked_at(
    directory: Path, host_id: int, status: Answer, do: Do | None = None
) -> AsyncIterator[bool]:
    """For the length of a block a host can be asked. Where that cannot be, it says why, and goes
    on without: the block gets False.

    Args:
        directory: where the socket is made.
        status: what the host does right now; JSON's values.
        do: does what else is asked for, and answers; None for nothing.
    """
    path = socket_path(directory, host_id)
    try:
        make_directory(directory)
        lock = _locked(lock_path(directory, host_id))
    except (NotOurs, OSError) as error:
        _logger.warning("cqrepl status cannot ask this host: %s", error)
        yield False
        return
    try:
        listener = await _listening(path)
    except OSError as error:
        _logger.warning("cqrepl status cannot ask this host: %s: %s", path, error.strerror or error)
        os.close(lock)
        yield False
        return
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, listener, status, do)
            yield True
            nursery.cancel_scope.cancel()
    finally:
        listener.socket.close()
        path.unlink(missing_ok=True)
        os.close(lock)


def _locked(path: Path) -> int:
    """The descriptor of the locked file.

    Raises:
        NotOurs: another process has it.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise NotOurs(f"{path}: another process is the host of this id here") from error
    return lock


async def _listening(path: Path) -> trio.SocketListener:
    path.unlink(missing_ok=True)
    place = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        await place.bind(str(path))
        path.chmod(0o600)
        place.listen(ASKING_MAX)
    except BaseException:
        place.close()
        raise
    return trio.SocketListener(place)


async def _serve(listener: trio.SocketListener, status: Answer, do: Do | None) -> None:
    limit = trio.CapacityLimiter(ASKING_MAX)
    async with trio.open_nursery() as nursery:
        while True:
            async with limit:
                pass  # room for one more
            try:
                stream = await listener.accept()
            except OSError as error:  # too few descriptors
                _logger.warning("a question for the status waits: %s", error.strerror)
                await trio.sleep(1.0)
                continue
            nursery.start_soon(_answer, stream, status, do, limit)


async def _answer(
    stream: trio.SocketStream, status: Answer, do: Do | None, limit: trio.CapacityLimiter
) -> None:
    async with limit, stream:
        with suppress(trio.BrokenResourceError):
            line = None
            with trio.move_on_after(ASK_SECONDS):
                line = await _line(stream)
            if line is not None:
                answer = json.dumps(await _answered(line, status, do)).encode() + b"\n"
                with trio.move_on_after(ASK_SECONDS):
                    await stream.send_all(answer)


async def _answered(line: bytes, status: Answer, do: Do | None) -> Values:
    try:
        asked = json.loads(line)
    except ValueError:
        asked = None
    if not isinstance(asked, dict) or asked.get("v") != FORM:
        return {"v": FORM, "error": 'a line such as {"v": 1, "do": "status"} expected'}
    if asked.get("do") == "status":
        return status()
    if asked.get("do") == "hail":
        return {"v": FORM}
    if do is None:
        return {"v": FORM, "error": "'status' expected, it is all that can be asked"}
    return await do(asked)


async def _line(stream: trio.SocketStream) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < REQUEST_MAX:
        more = await stream.receive_some(REQUEST_MAX)
        if not more:
            break
        data += more
    return data.partition(b"\n")[0]


def ask_status(directory: Path, host_id: int) -> Values:
    """The status of a host of this machine right now, as the host says.

    Raises:
        NotThere: no host answers.
    """
    path = socket_path(directory, host_id)
    answer = _exchanged(path, {"do": "status"}, ASK_SECONDS, "")
    if "error" in answer:
        raise NotThere(f"{path}: no host of this release answers")
    return answer


def ask(
    directory: Path, host_id: int, request: Mapping[str, object], seconds: float = TELL_SECONDS
) -> Values:
    """The answer of a host of this machine.

    Args:
        request: what it is to do, as `do`, and what for.
        seconds: longest wait for the answer, once it has shown that it listens.

    Raises:
        NotThere: no host answers.
    """
    path = socket_path(directory, host_id)
    # an older host knows no hail, and says so: that is an answer
    _exchanged(path, {"do": "hail"}, min(HAIL_SECONDS, seconds), "; it was told nothing")
    unknown = "; it is not known what it has done, or does yet"
    return _exchanged(path, request, seconds, unknown)


def _exchanged(path: Path, request: Mapping[str, object], seconds: float, silent: str) -> Values:
    """The answer to one request.

    Args:
        silent: what to add to the error where a process has the socket, and says nothing.

    Raises:
        NotThere: no host answers.
    """
    try:
        data = _line_for(path, json.dumps({"v": FORM} | dict(request)).encode() + b"\n", seconds)
        answer = json.loads(data)
    except TimeoutError as error:
        raise Silent(f"{path}: the host does not answer within {seconds:g} s{silent}") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NotThere(f"{path}: no host answers: {why}") from error
    if not isinstance(answer, dict):
        raise NotThere(f"{path}: no host of this release answers")
    return answer


def _line_for(path: Path, line: bytes, seconds: float) -> bytes:
    """The answer to a line, up to the end of the stream.

    Raises:
        TimeoutError: it does not come whole in this time.
        OSError: no host listens there, or the connection has broken.
    """
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as place:
        _connect(place, path, until)
        place.settimeout(max(until - time.monotonic(), 0.001))
        place.sendall(line)
        data = b""
        while len(data) < ANSWER_MAX:
            place.settimeout(max(until - time.monotonic(), 0.001))
            more = place.recv(65536)
            if not more:
                break
            data += more
    return data


def _connect(place: socket.socket, path: Path, until: float) -> None:
    """Connects, once there is room among the connections that wait for the host to let them in.
    With a time limit the system does not wait for that itself. A host that is stopped lets none in.

    Raises:
        TimeoutError: there was no room until then.
        OSError: no host listens there.
    """
    place.settimeout(0.0)
    while True:
        try:
            place.connect(str(path))
            return
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise TimeoutError from error
        time.sleep(ROOM_SECONDS)
