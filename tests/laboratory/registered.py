"""A service that keeps a byte, what writes and reads it, and the check of their history."""

from contextlib import suppress

import trio

from cqrepl.surroundings import surroundings, sync_path
from cqrepl.testing.experiment import linearizable
from cqrepl.testing.faultkinds import SERVICE_FIRST
from cqrepl.testing.linearizability import Register
from cqrepl.testing.site import Site

PORT = 2181
SECONDS = 2.0  # for an answer


async def register(site: Site) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        folder, asked = site.folder, await stream.receive_some(1)
        if asked not in (b"?", b""):
            (folder / "new").write_bytes(asked)
            sync_path(folder / "new")
            surroundings().rename(folder / "new", folder / "value")
            sync_path(folder)
        await stream.send_all((folder / "value").read_bytes() if asked else b"")

    if not (site.folder / "value").exists():
        (site.folder / "value").write_bytes(b"0")
        sync_path(site.folder / "value")
    sync_path(site.folder)
    await site.serve(answer, PORT)


async def ask(site: Site) -> None:
    while not site.quiet.is_set():
        await trio.sleep(site.rng.expovariate(2.0))
        asked = site.rng.choice((b"?", b"1", b"2", b"3", b"4", b"5"))
        name, value = ("read", None) if asked == b"?" else ("write", asked)
        with (
            site.history.call(site.name, name, value=value) as call,
            suppress(OSError, trio.BrokenResourceError),
            trio.move_on_after(SECONDS),
        ):
            async with await site.connect(SERVICE_FIRST, PORT) as stream:
                await stream.send_all(asked)
                said = await stream.receive_some(1)
                if said:
                    call.returned(said if asked == b"?" else None)


services = [register]
workload = ask
checks = [linearizable(Register(b"0"))]
