"""An excerpt that arrives otherwise than it was sent: commands that end do not end well over it."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.queue.format.index import format_index
from tests.support.commands import commands
from tests.support.samples import layout, noon_index

COUNT = 30
SENT, ARRIVED = b"excerpt 17", b"excerpt 71"


async def carry(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    async for data in source:
        await sink.send_all(bytes(data).replace(SENT, ARRIVED))
    with suppress(trio.BrokenResourceError):  # it has gone
        await sink.send_eof()


async def altering(port: int, sink: trio.SocketStream) -> None:
    """Carries one connection, and alters an excerpt on the way to the sink."""
    try:
        source = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:  # it has ended, and the sink comes once more
        return
    async with source, trio.open_nursery() as nursery:
        nursery.start_soon(carry, source, sink)
        nursery.start_soon(carry, sink, source)


async def test_both_sides_say_so_and_fail(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path / "q", create=layout()) as queue:
        data = [b"excerpt %d" % nth for nth in range(COUNT)]
        queue.appender().append_at(ExcerptBatch.of(noon_index(), data))
    async with trio.open_nursery() as nursery, commands() as start:
        source = await start(
            "source", f"q={tmp_path / 'q'}", "--listen", "127.0.0.1:0", "--until-caught-up"
        )
        serve = partial(trio.serve_tcp, partial(altering, await source.port()), 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        to = ("--connect", f"127.0.0.1:{port}")
        sink = await start("sink", f"q={tmp_path / 'copy'}", *to, "--once")
        codes = [await command.exit_code() for command in (source, sink)]
        nursery.cancel_scope.cancel()
    assert codes == [1, 1], (source.said, sink.said)
    for command in (source, sink):
        assert f"diverged at {format_index(noon_index(sequence=17))}" in command.said
