"""Source and sink each in a memory cgroup that is a fraction of what they replicate.

The page cache counts there, so the mapped files must be of the kind that the system can take back.
"""

import os
from pathlib import Path

from cqrepl.queue import Queue
from tests.faults.memorygroup import memory_group
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.replicas import at, eventually, last_of
from tests.support.samples import NOON_MS, layout

MIB = 1 << 20
SIZE = 512 * MIB
LIMIT = 128 * MIB
EXCERPT = 4096
BATCH = 256


def make_queue(path: Path) -> int:
    """A queue of half a gibibyte that is on the disk, and nowhere in memory; its last index."""
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        for _ in range(SIZE // (BATCH * EXCERPT)):
            last = appender.append([os.urandom(8) * (EXCERPT // 8)] * BATCH, NOON_MS)
    forget(path)
    return last


def forget(path: Path) -> None:
    """Takes the files out of the page cache: who reads them first has them counted as its own."""
    for file in path.iterdir():
        number = os.open(file, os.O_RDONLY)
        try:
            os.fsync(number)
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(number)


async def test_half_a_gibibyte_in_128_mebibytes_each(tmp_path: Path) -> None:
    original, copy = tmp_path / "q", tmp_path / "copy"
    last = make_queue(original)
    with memory_group("source", LIMIT) as of_source, memory_group("sink", LIMIT) as of_sink:
        async with (
            commands(500, before=of_source.entering) as start_source,
            commands(500, before=of_sink.entering) as start_sink,
        ):
            source = await start_source("source", f"q={original}", "--listen", "127.0.0.1:0")
            sink = await start_sink("sink", f"q={copy}", "--connect", at(await source.port()))
            with Queue.open(original) as queue:
                await eventually(lambda: queue.acknowledged_index == last, 500)
            for group in (of_source, of_sink):
                print(f"{group.path.name}: {group.peak_bytes // MIB} MiB of {LIMIT // MIB} MiB")
                assert group.kills == 0
                assert group.peak_bytes > 0.9 * LIMIT  # it was at its limit
            await source.terminate()
            await sink.terminate()
    assert last_of(copy) == last
    assert_same(original, copy)
    for file in (*original.iterdir(), *copy.iterdir()):
        file.unlink()
