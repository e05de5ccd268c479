"""A host of a cluster in a process of its own, with a copy of the queue "a", that is to be killed.

It says `up` when it runs, and then does what each line of its standard input says: `promote` makes
it the leader, and `leads` says whether it is. It dies at the n-th point of a promotion, from 1 on:
before or behind each call that syncs or renames a file. Where it is given a mounted file system,
the power of that is cut first.
"""

import fcntl
import os
import signal
import struct
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import trio

import cqrepl
from cqrepl.cluster import promoter
from cqrepl.net.address import Address
from cqrepl.net.errors import NetError
from cqrepl.replicator.settings import SinkSettings

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = struct.pack("I", 2)
WATCHED = ("fsync", "fdatasync", "replace", "rename")


class Death:
    """Comes at a point of what is done while it is awaited."""

    def __init__(self, at: int, mounted: str) -> None:
        self.is_awaited = False
        self._at = at
        self._mounted = mounted
        self._points = count(1)
        for name in WATCHED:
            setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            self._pass()
            result = real(*arguments, **more)
            self._pass()
            return result

        return call

    def _pass(self) -> None:
        if not self.is_awaited or next(self._points) != self._at:
            return
        if self._mounted:
            descriptor = os.open(self._mounted, os.O_RDONLY)
            fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH)
        os.kill(os.getpid(), signal.SIGKILL)


def settings(own: int, ports: list[int], path: Path) -> cqrepl.HostSettings:
    """Host 1 is the master. The higher id dials."""
    places = {nth: Address.parse(f"127.0.0.1:{port}") for nth, port in enumerate(ports, 1)}
    return cqrepl.HostSettings(
        net=cqrepl.NetSettings(
            listen=places[own], peers={each: at for each, at in places.items() if each < own}
        ),
        protocol=cqrepl.ProtocolSettings(host_id=own, remote_ids=frozenset(places.keys() - {own})),
        sink=SinkSettings(masters={"a": 1}),
        sources={"a": path} if own == 1 else {},
        sinks={} if own == 1 else {"a": path},
    )


async def main(own: int, ports: list[int], path: Path, death: Death) -> None:
    promoter.COMES_SECONDS = 0.0  # type: ignore[misc]  # host 1 is away, and is not waited for
    async with cqrepl.Host(settings(own, ports, path)) as host:
        print("up", flush=True)
        while True:
            word = (await trio.to_thread.run_sync(sys.stdin.readline)).strip()
            if word == "promote":
                while not host.endpoint.connections:  # each try in vain would pass points too
                    await trio.sleep(0.01)
                death.is_awaited = True
                try:
                    done = await host.leaders.promote("a")
                except NetError as error:
                    print(f"refused {error}", flush=True)
                else:
                    print(f"promoted {done.epoch} {done.start}", flush=True)
                death.is_awaited = False
            elif word == "leads":
                print(f"leads {bool(host.source.names)}", flush=True)
            else:
                return


if __name__ == "__main__":
    own, ports, path, at, *mounted = sys.argv[1:]
    trio.run(
        main,
        int(own),
        [int(port) for port in ports.split(",")],
        Path(path),
        Death(int(at), mounted[0] if mounted else ""),
    )
