"""Named tailers on copies: they stand where those of the source stand, and go on from there."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cqrepl.protocol.capabilities import CORE_CAPABILITIES, TAILERS_CAPABILITY
from cqrepl.queue import Queue, QueueLocked, Tailer
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.read.pauser import Pauser
from cqrepl.queue.write.retention import Policy, plan
from cqrepl.replicator.follow import follow
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.reading import cycles_of
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    acked,
    at,
    copied,
    eventually,
    joined,
    live_sink,
    live_source,
)
from tests.support.samples import NOON_MS, Excerpts, fill, noon_index, read
from tests.support.tables import fill_keys, keys_of, set_word

NAME = "replicated:orders"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def take(path: Path, name: str, count: int) -> Excerpts:
    """The next excerpts that the tailer of a name reads."""
    with Queue.open(path) as queue:
        tailer = queue.named_tailer(name)
        found = [(one.index, bytes(one)) for _, one in zip(range(count), tailer, strict=False)]
        tailer.commit()
        return found


def move(path: Path, name: str, index: int) -> None:
    with Queue.open(path) as queue:
        queue.named_tailer(name).move(index)


def stands(path: Path, name: str = NAME) -> tuple[int, int] | int | None:
    """Index and version that are kept; the index alone of a name that has no version."""
    keys = keys_of(path) if (path / "metadata.cq4t").exists() else {}
    index, version = keys.get(f"index.{name}"), keys.get(f"index.{name}.version")
    return index if index is None or version is None else (index, version)


@pytest.mark.usefixtures("has_pump")
async def test_a_reader_goes_on_on_the_copy(path: Path, copy: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 20, 2: 20})
    assert take(path, NAME, 7) == written[:7]
    async with joined(path, copy) as (source, _):
        await eventually(lambda: stands(copy) == stands(path))
        assert take(path, NAME, 20) == written[7:27]  # while the stream is at rest
        await eventually(lambda: stands(copy) == stands(path))
        with Queue.open(copy) as queue, pytest.raises(QueueLocked):
            queue.named_tailer(NAME)
        await acked(source, written[-1][0])
    assert stands(copy) == stands(path)
    assert take(copy, NAME, 99) == written[27:]
    assert stands(copy) == (written[-1][0] + 1, 6 + 20 + 13)


@pytest.mark.usefixtures("unhurried_ends")
async def test_the_last_move_before_an_orderly_end_goes_too(path: Path, copy: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 20})
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        async with serve_source({"q": path}, connect=at(sink.port), **BEATS) as source:
            await acked(source, written[-1][0])
            take(path, NAME, 5)
    assert stands(copy) == stands(path) == (written[5][0], 4)


@pytest.mark.usefixtures("has_pump")
async def test_the_higher_version_stands(path: Path, copy: Path) -> None:
    """Also with a lower index. With the same one, what the source has."""
    written = fill(path, "FAST_DAILY", {0: 20})
    key = f"index.{NAME}"
    take(path, NAME, 10)
    async with joined(path, copy) as (source, _):
        await acked(source, written[-1][0])
        await eventually(lambda: stands(copy) == (written[10][0], 9))
    take(copy, NAME, 3)  # it was the source for a while
    assert stands(copy) == (written[13][0], 12)
    move(path, NAME, written[2][0])
    move(path, "replicated:other", written[1][0])
    async with joined(path, copy):
        await eventually(lambda: stands(copy, "replicated:other") == (written[1][0], 0))
        assert stands(copy) == (written[13][0], 12)
        move(path, NAME, written[3][0])
        move(path, NAME, written[4][0])
        assert stands(path) == (written[4][0], 12)
        await eventually(lambda: stands(copy) == (written[4][0], 12))
        set_word(path, key, written[5][0])
        set_word(path, f"{key}.version", 40)
        await eventually(lambda: stands(copy) == (written[5][0], 40))
    assert take(copy, NAME, 99) == written[5:]


async def test_other_names_travel_if_they_are_to(path: Path, copy: Path) -> None:
    """They have the source's last value, whatever the copy had."""
    written = fill(path, "FAST_DAILY", {0: 20})
    take(path, "plain", 10)
    take(path, NAME, 1)
    async with joined(path, copy):
        await eventually(lambda: stands(copy) is not None)
    assert stands(copy, "plain") is None
    async with live_source(path, all_tailers=True) as source:
        async with live_sink(copy, source.port):
            await eventually(lambda: stands(copy, "plain") == written[10][0])
    take(copy, "plain", 5)
    async with live_source(path, all_tailers=True) as source:
        async with live_sink(copy, source.port):
            await eventually(lambda: stands(copy, "plain") == written[10][0])
            move(path, "plain", 0)
            await eventually(lambda: stands(copy, "plain") == 0)
    assert take(copy, "plain", 99) == written


@pytest.mark.usefixtures("has_pump")
async def test_it_never_stands_behind_what_the_copy_has(path: Path, copy: Path) -> None:
    """A reader that is ahead of what was sent is told once it was."""
    written = fill(path, "FAST_DAILY", {0: 20})
    take(path, NAME, 5)
    async with joined(path, copy) as (source, _):
        await acked(source, written[-1][0])
        await eventually(lambda: stands(copy) == (written[5][0], 4))
        set_word(path, "index.replicated:ahead", written[-1][0] + 3)
        set_word(path, "index.replicated:absurd", INDEX_MAX)
        take(path, NAME, 1)
        await eventually(lambda: stands(copy) == (written[6][0], 5))
        assert stands(copy, "replicated:ahead") is None
        with Queue.open(path) as queue:
            more = [queue.append(b"%d" % n, now_ms=1_709_640_000_000) for n in range(3)]
        await eventually(lambda: stands(copy, "replicated:ahead") == (more[1] + 1, -1))
        assert stands(copy, "replicated:absurd") is None
    assert more[1] + 1 == written[-1][0] + 3
    assert len(read(copy)) == len(read(path))


async def test_no_key_is_made_that_leaves_java_no_room(
    path: Path, copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = fill(path, "FAST_DAILY", {0: 20})
    async with joined(path, copy) as (source, _):
        await acked(source, written[-1][0])
    fill_keys(copy, KEY_END_MAX - 64)
    set_word(copy, "index.replicated:known", 0)
    set_word(copy, "index.replicated:known.version", -1)
    before = keys_of(copy).keys()
    take(path, NAME, 5)
    take(path, "replicated:known", 6)
    async with joined(path, copy):
        await eventually(lambda: stands(copy, "replicated:known") == (written[6][0], 5))
        await eventually(lambda: "is not kept" in caplog.text)
        take(path, NAME, 5)
        take(path, "replicated:known", 2)
        await eventually(lambda: stands(copy, "replicated:known") == (written[8][0], 7))
    assert keys_of(copy).keys() == before
    assert caplog.text.count("is not kept") == 1
    assert f"{NAME!r} stands is not kept: there is no room for its keys" in caplog.text


async def test_a_peer_that_knows_of_none(
    path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one before this: it is streamed to as ever, and hears nothing of them at its end."""
    known = CORE_CAPABILITIES - {TAILERS_CAPABILITY}
    monkeypatch.setattr("cqrepl.protocol.greeting.CORE_CAPABILITIES", known)
    written = fill(path, "FAST_DAILY", {0: 20})
    take(path, NAME, 5)
    async with serve_sink({"q": copy}, listen=LOOPBACK, **BEATS) as sink:
        async with serve_source({"q": path}, connect=at(sink.port), **BEATS) as source:
            await acked(source, written[-1][0])
            await copied(path, copy)
    assert stands(copy) is None


async def test_a_relayed_copy_passes_them_on(path: Path, copy: Path, tmp_path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 20})
    take(path, NAME, 5)
    async with joined(path, copy):
        await eventually(lambda: stands(copy) == (written[5][0], 4))
        async with joined(copy, tmp_path / "third"):
            await eventually(lambda: stands(tmp_path / "third") == (written[5][0], 4))
            take(path, NAME, 2)
            await eventually(lambda: stands(tmp_path / "third") == (written[7][0], 6))


async def test_they_keep_store_files_of_the_copy(path: Path, copy: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5, 1: 5, 2: 5})
    move(path, NAME, noon_index(ahead=1, sequence=2))
    async with joined(path, copy) as (source, _):
        await acked(source, noon_index(ahead=2, sequence=4))
        await eventually(lambda: stands(copy) is not None)
    with Queue.open(copy) as queue:
        first, second, _ = plan(queue.cycles, Policy(cycles_min=1))
    assert not first.reasons
    assert any(NAME in reason for reason in second.reasons)


async def test_gives_what_is_there_and_what_comes(path: Path, autojump_clock: MockClock) -> None:
    written = fill(path, "FAST_DAILY", {0: 600, 1: 5}, per_batch=600)
    found: Excerpts = []
    with Queue.open_for_append(path) as queue:
        tailer, appender = Tailer(cycles_of(path), 0), queue.appender()

        async def read() -> None:
            async for excerpt in follow(tailer):
                found.append((excerpt.index, bytes(excerpt)))
                if bytes(excerpt) == b"last":
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while len(found) < len(written):
                await trio.sleep(0.01)
            for data in (b"more", b"last"):
                index = appender.append([data], NOON_MS)
                written.append((index, data))
                await trio.sleep(1)
        assert found == written
        tailer.close()


async def test_it_can_be_cancelled_while_it_waits(path: Path, autojump_clock: MockClock) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    tailer = Tailer(cycles_of(path), 0)
    given = 0
    with trio.move_on_after(60) as scope:
        async for _ in follow(tailer, Pauser(spins=0, sleep_max_s=1.0)):
            given += 1
    assert scope.cancelled_caught
    assert given == 1
    tailer.close()
