"""`cqrepl tailers`: named tailers are shown, and moved."""

from pathlib import Path

from cqrepl.queue import Queue
from tests.support.commands import commands
from tests.support.samples import fill


async def test_named_tailers_are_shown_and_moved(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 9})
    with Queue.open(path) as queue:
        tailer = queue.named_tailer("reports")
        tailer.next_excerpt()
        tailer.commit()
        tailer.close()
        first, end = queue.first_index(), queue.next_index()
        assert first is not None
    async with commands(60) as start:
        await (await start("tailers", path)).succeeds()
        await (await start("tailers", path, "set", "reports", hex(first + 4))).succeeds()
        assert place(path) == first + 4
        await (await start("tailers", path, "set", "reports", "last")).succeeds()
        assert place(path) == end - 1
        await (await start("tailers", path, "forget", "reports")).succeeds()
        assert place(path) == end
        wrong = await start("tailers", path, "forget", "other")
        assert await wrong.exit_code() == 2
        assert "expected a named tailer (reports), got 'other'" in wrong.said
        assert await (await start("tailers", path, "set", "reports")).exit_code() == 2


def place(path: Path) -> int:
    with Queue.open(path) as queue:
        position = queue.named_position("reports")
        found = position.load()
        position.close()
        return found
