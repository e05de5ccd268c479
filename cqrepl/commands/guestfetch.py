"""Takes closed cycles of a queue as a guest of a host that has a copy."""

from cqrepl.host import serve_host
from cqrepl.net.address import Address
from cqrepl.net.settings import NetSettings
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.protocol import ProtocolSettings
from cqrepl.queue import Queue
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.replicator.lostcycles.fetcher import Asker
from cqrepl.replicator.settings import HostSettings


async def fetch(
    queue: Queue,
    wanted: list[ClosedCycle],
    name: str,
    host: Address,
    id_: int,
    tls: TlsSettings = NO_TLS,
) -> None:
    """Fetches these cycles, and puts them in their places.

    Args:
        name: of the queue, at the host that is asked.
        id_: of that host.
        tls: by which it is met.

    Raises:
        Unreachable: the host was not reached, or says nothing.
        Refused: it does not give them.
        QueueDamaged: what it gives is not what was there.
        QueueError, OSError: it cannot be stored.
    """
    settings = HostSettings(
        net=NetSettings(connect=host, gives_up=True, tls=tls),
        protocol=ProtocolSettings(guest="cqrepl repair", remote_ids=frozenset({id_})),
    )
    asker = Asker(queue, wanted, name, stays=True)
    async with serve_host(settings, sources={}, sinks={}, program=asker):
        await asker.ended(str(host))
    asker.check()  # not from within the block, which would make a group of it
