"""Every golden queue through a real source and a real sink, and what Java finds in the copy.

All queues that Java reads to their end go over one connection between two processes, and each goes
alone between a source and a sink in this process. Those at which Java's reader waits for an
end-of-file mark are streamed just as far, and further when Java has set the mark.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from cqrepl.demo import difference
from cqrepl.net import Sink, Source, serve_sink, serve_source
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.rollcycle import by_name
from tests.commands import commands, until
from tests.interop.build import BUILD_TIMEOUT_S
from tests.interop.goldens import (
    READ_IN_PART,
    READ_TO_END,
    Manifest,
    Untouched,
    assert_java_finds,
    assert_made_like,
    excerpts_of,
    indexes_of,
    manifest,
    unpack,
)
from tests.interop.java import JavaQueue, require_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 120)]

CHECKED = ("-ea", "-Dqueue.check.index=true")
NOON_MS = 1_709_640_000_000  # 2024-03-05, 12:00 UTC
LOOPBACK = "127.0.0.1:0"
WIDE = 4 << 20


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(java_options=CHECKED) as queue:
        yield queue


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
        with trio.fail_after(60):
            async with commands() as start:
                source = await start(
                    "source", *self.sources.values(), "--listen", LOOPBACK, "--until-caught-up"
                )
                address = f"127.0.0.1:{await source.port()}"
                queues = [f"{name}={path}" for name, path in self.sinks.items()]
                sink = await start("sink", *queues, "--connect", address, "--once")
                await source.succeeds()
                await sink.succeeds()


def assert_copied(java: JavaQueue, path: Path, golden: Manifest) -> None:
    """The copy is made like the golden queue, and Java finds all that is in that one."""
    assert_made_like(path, golden)
    block_size = golden["blockSize"]
    summary = assert_java_finds(java, path, excerpts_of(golden), block_size=block_size)
    assert summary["rollCycle"] == golden["rollCycle"]
    assert summary["epoch"] == golden["epoch"]


@pytest.mark.parametrize("name", READ_TO_END)
def test_java_finds_every_excerpt_of_every_queue(
    java: JavaQueue, together: Together, name: str
) -> None:
    golden = manifest(name)
    assert_copied(java, together.sinks[name], golden)
    together.untouched[name].check(int(golden["lastIndex"], 16))


async def caught_up(
    sources: dict[str, Path], sinks: dict[str, Path], *, source_dials: bool = False
) -> None:
    """Runs a source and a sink in this process until the sink has it all and both have ended."""
    sink_ended = trio.Event()
    ports: list[int] = []
    one_listens = trio.Event()

    async def run_source(address: dict[str, str]) -> None:
        async with serve_source(sources, **address) as source:
            listening(source)
            await source.wait_caught_up()

    async def run_sink(address: dict[str, str]) -> None:
        async with serve_sink(sinks, **address) as sink:
            listening(sink)
            await sink.wait_ended()
        sink_ended.set()

    def listening(end: Source | Sink) -> None:
        if end.port is not None:
            ports.append(end.port)
            one_listens.set()

    first, second = (run_sink, run_source) if source_dials else (run_source, run_sink)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(first, {"listen": LOOPBACK})
        await one_listens.wait()
        nursery.start_soon(second, {"connect": f"127.0.0.1:{ports[0]}"})
        await sink_ended.wait()


@pytest.mark.parametrize("name", READ_TO_END)
async def test_a_queue_alone(java: JavaQueue, tmp_path: Path, name: str) -> None:
    golden = manifest(name)
    source, sink = unpack(name, tmp_path), tmp_path / "copy"
    untouched = Untouched(source, tmp_path / "saved")
    source_dials = bool(READ_TO_END.index(name) % 2)
    with trio.fail_after(30):
        await caught_up({"q": source}, {"q": sink}, source_dials=source_dials)
    assert_copied(java, sink, golden)
    untouched.check(int(golden["lastIndex"], 16))


def test_a_copy_has_the_source_id_of_its_original(java: JavaQueue, together: Together) -> None:
    name = "named_tailers"
    ids = [java.call("dump", path).lines[-1]["sourceId"] for path in (
        together.sources[name], together.sinks[name]
    )]  # fmt: skip
    assert ids == [7, 7]


async def test_streams_as_far_as_java_reads_and_on_when_java_ends_the_file(
    java: JavaQueue, tmp_path: Path
) -> None:
    """Every turn of the source looks at all queues: once the excerpt that was appended last to
    another queue has come through, more of these would have come too."""
    goldens = {name: manifest(name) for name in READ_IN_PART}
    sources = {name: unpack(name, tmp_path / "source") for name in goldens}
    sinks = {name: tmp_path / "sink" / name for name in [*goldens, "probe"]}
    untouched = {name: Untouched(path, tmp_path / name) for name, path in sources.items()}
    layout = QueueLayout.of(by_name("FAST_DAILY"))
    reads = {name: golden["javaTailer"]["reads"] for name, golden in goldens.items()}
    with Queue.open_for_append(tmp_path / "probe", create=layout) as probe, trio.fail_after(60):
        async with commands() as start:
            source = await start(
                "source", *sources.values(), tmp_path / "probe", "--listen", LOOPBACK
            )
            address = f"127.0.0.1:{await source.port()}"
            sink = await start(
                "sink", *(f"{name}={path}" for name, path in sinks.items()), "--connect", address
            )
            for name, golden in goldens.items():
                await until(lambda: acknowledged(sources[name]) >= indexes_of(golden)[reads[name] - 1])
            probe.appender().append([b"more"], NOON_MS)
            await until(lambda: acknowledged(tmp_path / "probe") == probe.last_index())
            for name, golden in goldens.items():
                untouched[name].check(indexes_of(golden)[reads[name] - 1])
                copied = dump(java, sinks[name])
                assert copied == excerpts_of(golden, reads[name])
                java.call("appendat", sources[name], golden["rollCycle"], "--eofs")
            for name, golden in goldens.items():
                rest = dump(java, sources[name])
                print(name, len(rest), golden["count"])
            await source.terminate()
            await sink.terminate()


def dump(java: JavaQueue, path: Path) -> list[dict[str, object]]:
    return java.call("dump", path, "--sha", props={"interop.readOnly": True}).lines[:-1]


def acknowledged(path: Path) -> int:
    with Queue.open(path) as queue:
        return queue.acknowledged_index
