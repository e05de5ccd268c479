"""A Java that checks what it reads, and what it finds in a queue of ours."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.java import JavaQueue, Line, require_java

CHECKED: Final = ("-ea", "-Dqueue.check.index=true")  # Java's own assertions
MOVES: Final = 2000  # how often `verify` goes to an index at random


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    """A process of Java for the tests of a module."""
    require_java()
    with JavaQueue(java_options=CHECKED) as queue:
        yield queue


def assert_java_finds(
    java: JavaQueue, path: Path, excerpts: Sequence[Line], *, block_size: int = 65536
) -> Line:
    """Java verifies the queue and reads exactly these; gives the last line of its dump."""
    props = {"interop.blockSize": max(block_size, 65536)}
    verified = java.call("verify", path, MOVES, props=props)
    assert verified.exit == 0, verified
    assert verified.lines[0]["count"] == len(excerpts), verified
    *found, summary = java.call("dump", path, "--sha", props=props).lines
    assert found == list(excerpts)
    return summary
