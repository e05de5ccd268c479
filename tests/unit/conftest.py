"""No test here starts a process or opens a socket, whatever the code does that it calls.

`tests/test_tidy.py` reads the files for the same; here the interpreter tells of it as it happens.
"""

import sys
from collections.abc import Iterator

import pytest

ELSEWHERE = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "pty.spawn",
        "socket.__new__",
        "subprocess.Popen",
    }
)
_running: list[str] = []


def _refuse(event: str, _arguments: tuple[object, ...]) -> None:
    if _running and event in ELSEWHERE:
        raise AssertionError(f"{_running[-1]} did {event}: tests/unit is no place for that")


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def _without_processes_and_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    _running.append(request.node.nodeid)
    yield
    _running.pop()
