"""Every golden queue through a real source and a real sink, and what Java finds in the copy.

All queues that Java reads to their end go over one connection between two processes, and each goes
alone between a source and a sink in this process. Those at which Java's reader waits for an
end-of-file mark are streamed just as far, and further when a writer has set the mark.
"""

import shutil
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX
from cqrepl.queue.files.chroniclemarks import (
    ACKNOWLEDGED_KEY,
    FILE_KEY,
    FIRST_KEY,
    SENT_KEY,
    SYNCED_KEY,
)
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.keptidentity import HIGH_KEY, LOW_KEY
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.identity import identity_of
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.commands import commands, until
from tests.support.copies import assert_same
from tests.support.goldens import READ_IN_PART, READ_TO_END, Manifest, manifest, unpack
from tests.support.java import JavaQueue, Line
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javachecks import assert_java_finds
from tests.support.javapayloads import payloads
from tests.support.samples import NOON_MS, assert_made_like
from tests.support.tables import keys_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

LOOPBACK = "127.0.0.1:0"
WIDE = 4 << 20


MARKS = {SENT_KEY.lower(), ACKNOWLEDGED_KEY.lower()}
SYNCED = SYNCED_KEY.lower()
HOST_MARKS = {"cqrepl.2.snt", "cqrepl.2.idx"}
HOST_SYNCED = "cqrepl.2.syn"  # there if the sink has said so before its source ended


class Untouched:
    """A source's directory as it was, to be compared later: only marks may change, and it gets an
    identity.

    The mark of what is on the disk is a file of its own. Java's three are there in every golden
    queue; those of the sink's host, and the identity, are added behind all keys.
    """

    def __init__(self, path: Path, saved: Path) -> None:
        self._path = path
        self._saved = saved
        shutil.copytree(path, saved)

    def check(self, last_index: int | None) -> None:
        """Nothing has changed but the marks, which are at `last_index` where there can be any."""
        own = {SYNCED_FILE_NAME, CLOSED_FILE_NAME}
        found = (file.name for file in self._path.iterdir())
        names = sorted(n for n in found if n not in own and not n.endswith(CHAIN_SUFFIX))
        assert names == sorted(file.name for file in self._saved.iterdir())
        for name in names:
            if name != FILE_NAME:
                now, then = (self._path / name).read_bytes(), (self._saved / name).read_bytes()
                assert now == then, f"{name} has changed"
        if FILE_NAME in names and last_index is not None:
            self._check_table(last_index)

    def _check_table(self, last_index: int) -> None:
        """Before the end of the keys Java's three marks are the only words that differ."""
        now, then = ((path / FILE_NAME).read_bytes() for path in (self._path, self._saved))
        assert len(now) >= len(then)  # an old table store is shorter than ours are made
        with Queue.open(self._saved) as queue:
            end = queue.host_marks.keys_end()
        words = {at // 8 for at in range(end) if now[at] != then[at]}
        assert len(words) <= len(MARKS | {SYNCED})
        keys, were = keys_of(self._path), keys_of(self._saved)
        assert identity_of(keys.pop(HIGH_KEY), keys.pop(LOW_KEY)) is not None
        assert keys.pop(HOST_SYNCED, last_index) <= last_index
        synced = keys.pop(SYNCED)  # of all that is there, once it was synced
        assert synced >= last_index or synced == were[SYNCED]
        were.pop(SYNCED, None)  # an old table store has none
        keys.pop(FILE_KEY.lower(), None)  # the file that a host has seen last
        keys.pop(FIRST_KEY.lower(), None)  # the first cycle that a source has streamed
        assert keys == were | dict.fromkeys(MARKS | HOST_MARKS, last_index)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> "Together":
    folder = tmp_path_factory.mktemp("together")
    result = Together(folder)
    trio.run(result.replicate)
    return result


class Together:
    """All golden queues, over one connection."""

    def __init__(self, folder: Path) -> None:
        self.sources = {name: unpack(name, folder / "source") for name in READ_TO_END}
        self.sinks = {name: folder / "sink" / name for name in READ_TO_END}
        saved = folder / "saved"
        self.untouched = {
            name: Untouched(path, saved / name) for name, path in self.sources.items()
        }

    async def replicate(self) -> None:
        async with commands(120) as start:
            source = await start(
                "source", *self.sources.values(), "--listen", LOOPBACK, "--until-caught-up"
            )
            address = f"127.0.0.1:{await source.port()}"
            queues = [f"{name}={path}" for name, path in self.sinks.items()]
            sink = await start("sink", *queues, "--connect", address, "--once")
            await source.succeeds()
            await sink.succeeds()


def assert_copied(java: JavaQueue, path: Path, golden: Manifest) -> None:
    assert_made_like(path, golden)
    summary = assert_java_finds(java, path, golden.dumped(), block_size=golden.block_size)
    assert summary["rollCycle"] == golden.roll_cycle_name
    assert summary["epoch"] == golden.epoch


@pytest.mark.parametrize("name", READ_TO_END)
def test_java_finds_every_excerpt_of_every_queue(
    java: JavaQueue, together: Together, name: str
) -> None:
    golden = manifest(name)
    assert_copied(java, together.sinks[name], golden)
    together.untouched[name].check(golden.indexes[-1])


async def caught_up(
    sources: dict[str, Path], sinks: dict[str, Path], *, source_dials: bool = False
) -> None:
    """Runs a source and a sink in this process until the sink has it all and both have ended."""

    async def run_source(
        listen: str | None, connect: str | None, *, task_status: trio.TaskStatus[int | None]
    ) -> None:
        async with serve_source(sources, listen=listen, connect=connect) as source:
            task_status.started(source.port)
            await source.wait_caught_up()

    async def run_sink(
        listen: str | None, connect: str | None, *, task_status: trio.TaskStatus[int | None]
    ) -> None:
        async with serve_sink(sinks, listen=listen, connect=connect) as sink:
            task_status.started(sink.port)
            await sink.wait_ended()

    first, second = (run_sink, run_source) if source_dials else (run_source, run_sink)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(first, LOOPBACK, None)
        await nursery.start(second, None, f"127.0.0.1:{port}")


@pytest.mark.parametrize("name", READ_TO_END)
async def test_a_queue_alone(java: JavaQueue, tmp_path: Path, name: str) -> None:
    golden = manifest(name)
    source, sink = unpack(name, tmp_path), tmp_path / "copy"
    untouched = Untouched(source, tmp_path / "saved")
    source_dials = bool(READ_TO_END.index(name) % 2)
    with trio.fail_after(300):
        await caught_up({"q": source}, {"q": sink}, source_dials=source_dials)
    assert_copied(java, sink, golden)
    untouched.check(golden.indexes[-1])


def test_a_copy_has_the_source_id_of_its_original(java: JavaQueue, together: Together) -> None:
    name = "named_tailers"
    ids = [java.call("dump", path).lines[-1]["sourceId"] for path in (
        together.sources[name], together.sinks[name]
    )]  # fmt: skip
    assert ids == [7, 7]


async def test_streams_as_far_as_java_reads_and_on_when_a_writer_ends_the_file(
    java: JavaQueue, tmp_path: Path
) -> None:
    """Every turn of the source looks at all queues: once the excerpt that was appended last to
    another queue has come through, more of these would have come too."""
    goldens = {name: manifest(name) for name in READ_IN_PART}
    sources = {name: unpack(name, tmp_path / "source") for name in goldens} | {
        "probe": tmp_path / "probe"
    }
    sinks = {name: tmp_path / "sink" / name for name in sources}
    untouched = {name: Untouched(sources[name], tmp_path / name) for name in goldens}
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    with Queue.open_for_append(sources["probe"], create=layout) as probe:
        async with commands() as start:
            source = await start("source", *sources.values(), "--listen", LOOPBACK)
            queues = [f"{name}={path}" for name, path in sinks.items()]
            sink = await start("sink", *queues, "--connect", f"127.0.0.1:{await source.port()}")
            for name, golden in goldens.items():
                await acknowledged(sources[name], golden.indexes[golden.java_reads - 1])
            probe.appender().append([b"more"], NOON_MS)
            await acknowledged(sources["probe"], probe.last_index())
            for name, golden in goldens.items():
                untouched[name].check(golden.indexes[golden.java_reads - 1])
                assert dump(java, sinks[name]) == golden.dumped(golden.java_reads)
            for name, golden in goldens.items():
                with Queue.open_for_append(sources[name]) as queue:
                    queue.appender()  # sets the end-of-file marks that are missing
                await acknowledged(sources[name], golden.indexes[-1])
            await source.terminate()
            await sink.terminate()
    for name, golden in goldens.items():
        assert_copied(java, sinks[name], golden)


def dump(java: JavaQueue, path: Path) -> list[Line]:
    """The lines that Java reads, without touching the queue that a sink is still writing."""
    return java.call("dump", path, "--sha", props={"interop.readOnly": True}).lines[:-1]


async def acknowledged(path: Path, index: int | None) -> None:
    """Waits until a source has been told that the sink has this index."""
    with Queue.open(path) as queue:
        await until(lambda: queue.acknowledged_index == index)


async def test_weekly_is_refused_in_one_line(tmp_path: Path) -> None:
    path = unpack("weekly", tmp_path)
    async with commands() as start:
        for role in ("source", "sink"):
            command = await start(role, path, "--listen", LOOPBACK)
            assert await command.exit_code() == 2
            [line] = command.said.splitlines()
            assert line.startswith(f"cqrepl {role}: {path}")
            assert "WEEKLY" in line


async def test_sizes_of_every_kind(java: JavaQueue, tmp_path: Path) -> None:
    """Payloads on both sides of each width of a length, and a first one without any byte."""
    path, copy = tmp_path / "queue", tmp_path / "copy"
    wanted: list[bytes] = []
    for seed, (first, last, rounds) in enumerate([(0, 300, 2), (65535, 65537, 3)]):
        count = (last - first + 1) * rounds
        props = {"interop.blockSize": WIDE, "interop.time": NOON_MS + seed * 3_600_000}
        answer = java.call(
            "append", path, "FAST_HOURLY", count, f"{first}-{last}", seed, props=props
        )
        assert answer.exit == 0, answer
        wanted += payloads(seed, count, first, last)
    with trio.fail_after(300):
        await caught_up({"q": path}, {"q": copy})
    assert_same(path, copy)
    *found, _ = java.call("dump", copy, props={"interop.blockSize": WIDE}).lines
    assert [bytes.fromhex(line["payload"]) for line in found] == [
        data or b"\x8f" for data in wanted
    ]
    verified = java.call("verify", copy, props={"interop.blockSize": WIDE})
    assert verified.exit == 0, verified
