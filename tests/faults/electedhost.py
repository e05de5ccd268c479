"""A host that elects, in a process of its own, which appends to the queue "q" whenever it leads.

    python -m tests.faults.electedhost FILE HOST_ID

It says a line of JSON for each excerpt that its policy has called safe, and for each new role.
"""

import json
import sys
from pathlib import Path

import trio

from cqrepl import AckUnknown, Host, HostEvents, QueueError, SteppedDown, WaitEnded, read_settings
from cqrepl.net.errors import Refused
from cqrepl.replicator.hostqueue import HostQueue
from cqrepl.replicator.rolelog import Role, RoleChange

QUEUE = "q"
PAUSE_SECONDS = 0.005


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def tell(change: RoleChange) -> None:
    say(role=change.role.value, epoch=change.epoch)


async def append_all(host_id: int, queue: HostQueue) -> None:
    leading, nth = queue.leading, 0
    while True:
        payload = f"{host_id}:{leading.epoch}:{nth}"
        appended = await queue.append(payload.encode())
        if appended.is_acked:
            say(acked=int(appended), payload=payload, epoch=leading.epoch)
        nth += 1
        await trio.sleep(PAUSE_SECONDS)


async def main(path: Path, host_id: int) -> None:
    settings = read_settings(path, host_id, environ={})
    async with Host(settings, events=HostEvents(on_role_change=tell)) as host:
        while True:
            if host.position(QUEUE).role is Role.LEADING:
                try:
                    await append_all(host_id, host.queue(QUEUE))
                except (SteppedDown, WaitEnded, AckUnknown, Refused, QueueError) as error:
                    say(ended=str(error)[:200])
            await trio.sleep(0.02)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
