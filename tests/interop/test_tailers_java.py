"""Java's named tailers on a queue that is streamed, and on its copy after a fail-over."""

from contextlib import closing
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from tests.support.java import Answer, JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.replicas import acked, eventually, joined
from tests.support.samples import NOON_MS, Excerpts, fill
from tests.support.tables import keys_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 300)]

NAME = "replicated:orders"


def tail(java: JavaQueue, path: Path, count: int, name: str = NAME) -> Answer:
    return java.call("tail", path, count, 60, "--name", name)


def taken(java: JavaQueue, path: Path, count: int, name: str = NAME) -> Excerpts:
    answer = tail(java, path, count, name)
    assert answer.exit == 0, answer
    lines = [line for line in answer.lines if "payload" in line]
    return [(int(line["index"], 16), bytes.fromhex(line["payload"])) for line in lines]


def stands(path: Path, name: str = NAME) -> tuple[int, int]:
    keys = keys_of(path)
    return keys.get(f"index.{name}", 0), keys.get(f"index.{name}.version", -1)


async def test_a_java_reader_goes_on_on_the_copy(java: JavaQueue, tmp_path: Path) -> None:
    """Over the end of a cycle; refused while the copy is one; and back again with what it has read
    there."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 20, 2: 20})
    assert taken(java, path, 7) == written[:7]
    async with joined(path, copy) as (source, _):
        await acked(source, written[-1][0])
        await eventually(lambda: stands(copy) == stands(path))
        found = await trio.to_thread.run_sync(lambda: taken(java, path, 20))
        assert found == written[7:27]
        await eventually(lambda: stands(copy) == stands(path))
        refused = await trio.to_thread.run_sync(lambda: tail(java, copy, 1))
        assert refused.exit != 0
        assert stands(copy) == stands(path)
    assert stands(path)[0] == written[27][0]
    assert taken(java, copy, 6) == written[27:33]
    appended = java.call(
        "append", copy, "FAST_DAILY", 3, 40, 1, props={"interop.time": NOON_MS + 3 * 86_400_000}
    )
    assert appended.exit == 0, appended
    async with joined(copy, path) as (source, _):  # the other way round
        await eventually(lambda: stands(path) == stands(copy))
    rest = taken(java, path, 10)
    assert rest[:7] == written[33:]
    assert len(rest) == 10


def test_a_name_beyond_ascii_is_the_same_to_both(java: JavaQueue, tmp_path: Path) -> None:
    """Java keeps the lower half of each UTF-16 unit; what is beyond Latin-1 it never finds again,
    and we go on at what it has kept."""
    path = tmp_path / "q"
    written = fill(path, "FAST_DAILY", {0: 9})

    def ours(name: str) -> Excerpts:
        with Queue.open(path) as queue, closing(queue.named_tailer(name)) as tailer:
            excerpt = tailer.next_excerpt()
            assert excerpt is not None
            found = [(excerpt.index, bytes(excerpt))]
            tailer.commit()
        return found

    for nth in range(0, 6, 2):
        assert taken(java, path, 1, "grün") == written[nth : nth + 1]
        assert ours("grün") == written[nth + 1 : nth + 2]
    assert taken(java, path, 3, "gr\u00fcn\u20ac\U0001f600") == written[:3]
    for nth in range(3, 6):
        assert ours("gr\u00fcn\u20ac\U0001f600") == written[nth : nth + 1]
    assert stands(path, "grün¬=\x00") == (written[6][0], -1)


async def test_a_reader_that_has_not_moved_and_one_of_ours(java: JavaQueue, tmp_path: Path) -> None:
    """The keys that we make in a copy are those that Java would have made."""
    path, copy = tmp_path / "q", tmp_path / "copy"
    written = fill(path, "FAST_DAILY", {0: 9})
    assert not taken(java, path, 0)
    assert not taken(java, path, 0, "plain")
    assert taken(java, path, 4, "replicated:two") == written[:4]
    async with joined(path, copy) as (source, _):
        await acked(source, written[-1][0])
        await eventually(lambda: stands(copy, "replicated:two") == stands(path, "replicated:two"))
    assert taken(java, copy, 9) == written
    assert taken(java, copy, 5, "replicated:two") == written[4:]
    ours, theirs = keys_of(copy), keys_of(path)
    assert {key for key in theirs if key.startswith("index.replicated:")} == {
        key for key in ours if key.startswith("index.replicated:")
    }
    assert "index.plain" in theirs
    assert "index.plain" not in ours
    assert java.call("verify", copy, 500).lines[0]["count"] == len(written)
