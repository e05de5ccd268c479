"""The work of operators on the file of a cluster: they change it, and have hosts read it again.

Each host has its own copy of the file, which it also reads when it starts. A change of the master
takes the steps of docs/operations.md. The old master reads the file first, and gives the queue back
or refuses; then the new master reads it; then all other hosts. A host that is away is waited for.
Where the old master refuses, or goes before it has answered, its file becomes what it was: a host
that is started by another file gives nothing back in order.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import trio

from cqrepl.console.exitcodes import OK
from cqrepl.net.controlsocket import Values
from cqrepl.net.wordwatch import word_watch
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError, content, digest_of
from cqrepl.testing.labhosts import LabHost
from cqrepl.testing.ledqueue import LedQueue
from cqrepl.testing.plan import Fault, Kind
from cqrepl.testing.storereader import promises

OTHER: Final = "other"  # name of a queue that comes and goes
AGAIN_SECONDS: Final = 1.0  # until a host that gave no answer, or refused, is told again
FINISH_SECONDS: Final = 60.0  # for all that was begun, once all hosts run
HANDS_OVER_SECONDS: Final = 20.0  # so long may a host be at it that was asked before
LIMITS: Final = (0, 100_000, 1_000_000)  # bytes a second
_EXCERPTS: Final = 5

Tell = Callable[[LabHost, Values], Awaitable[Values | None]]


class FileChanges:
    """The changes of the files that the hosts of one cluster have.

    Args:
        tell: asks a host for something.
    """

    def __init__(self, led: LedQueue, hosts: Mapping[int, LabHost], tell: Tell) -> None:
        self._led = led
        self._hosts = hosts
        self._tell = tell
        self._turn = trio.Lock()
        self._doing = ""
        self._is_of_masters = False
        self._hands_over_until = -math.inf
        self._master_of_other: int | None = None  # once it was added
        self._written: dict[int, bytes] = {}  # of the other queue

    async def act(self, fault: Fault) -> None:
        """Does what a plan says; returns when all hosts have done so."""
        async with self._turn:
            self._doing, self._is_of_masters = str(fault), fault.kind is Kind.NEW_MASTER
            match fault.kind:
                case Kind.NEW_MASTER:
                    self._hands_over_until = math.inf
                    await self._new_master(fault)
                    self._hands_over_until = trio.current_time() + HANDS_OVER_SECONDS
                case Kind.OTHER_QUEUE:
                    await self._other_queue(fault.host)
                case _:
                    for file in self._led.files.values():
                        file.limit = LIMITS[fault.nth % len(LIMITS)]
                    await self._reload_all(self._hosts)

    @property
    def may_hand_over(self) -> bool:
        """True while hosts may promote one of them, as a file has another master."""
        return trio.current_time() < self._hands_over_until

    async def finish(self, is_held: Callable[[], bool]) -> bool:
        """Waits for what was begun; false where it is not done, and hosts have told why.

        Args:
            is_held: whether a copy takes nothing of its master, and has told why: then that one
                does not give the queue to another.

        Raises:
            BrokenPromiseError: hosts do not do it, though all of them run.
        """
        with trio.move_on_after(FINISH_SECONDS) as scope:
            async with self._turn:
                pass
        if scope.cancelled_caught and not (self._is_of_masters and is_held()):
            raise BrokenPromiseError("reload", f"it is not done, though all run: {self._doing}")
        return not scope.cancelled_caught

    # ---- another master --------------------------------------------------------------------------

    async def _new_master(self, fault: Fault) -> None:
        led, old = self._led, self._led.master
        others = sorted(self._hosts.keys() - {old})
        new = fault.host if fault.host != old else others[fault.nth % len(others)]
        if not await self._has_given_back(old, new):
            return
        led.master = new
        for host in (new, *sorted(self._hosts.keys() - {old, new})):
            led.files[host].masters[led.name] = new
            if not await self._reload(host):
                return
            if host == new:
                led.writers.add(new)

    async def _has_given_back(self, old: int, new: int) -> bool:
        """Has the old master give the queue back; false where it refuses."""
        masters, name = self._led.files[old].masters, self._led.name
        while True:
            masters[name] = new
            answer = await self._tell(self._hosts[old], {"do": "reload"})
            if answer is not None and answer.get("code") == OK:
                return True
            masters[name] = old
            if answer is not None:
                return False
            await trio.sleep(AGAIN_SECONDS)

    async def _reload_all(self, hosts: Iterable[int]) -> None:
        for host in hosts:
            await self._reload(host)

    async def _reload(self, host: int) -> bool:
        """Has a host read its file again, until it does all that it says; false where it refuses as
        the queue is led by an epoch."""
        while True:
            answer = await self._tell(self._hosts[host], {"do": "reload"})
            if answer is not None:
                if answer.get("code") == OK:
                    return True
                is_led = promises(self._led.copies[host].path).promised > 0
                if is_led and "error" not in answer:  # with one, as of a full disk, nothing is done
                    return False
            await trio.sleep(AGAIN_SECONDS)

    # ---- a queue that comes and goes -------------------------------------------------------------

    async def _other_queue(self, host: int) -> None:
        if self._master_of_other is None:
            self._master_of_other = host
        master = self._master_of_other
        is_there = OTHER in self._led.files[master].masters
        while not is_there and not self._append(master):
            await trio.sleep(AGAIN_SECONDS)  # its disk is full: an application tries again
        for file in self._led.files.values():
            if is_there:
                del file.masters[OTHER]
            else:
                file.masters[OTHER] = master
        await self._reload_all([master, *sorted(self._hosts.keys() - {master})])
        if not is_there:
            self._append(master)

    def _append(self, host: int) -> bool:
        """An application makes the queue, or goes on with it; false where it could not be made."""
        machine = self._hosts[host].machine
        path = machine.path / OTHER
        process = machine.start("other application")
        with within(process):
            process.give_time()
            try:
                with Queue.open_for_append(path, create="FAST_DAILY", wait_for_seconds=0) as queue:
                    for _ in range(_EXCERPTS):
                        payload = b"%d of the other queue" % len(self._written)
                        self._written[queue.append(payload)] = digest_of(payload)
            except (QueueError, OSError) as error:
                self._hosts[host].tell(f"other application: {error}")
        machine.alive.discard(process.pid)
        word_watch().look()
        return (path / FILE_NAME).exists()

    @property
    def is_settled(self) -> bool:
        """True when all copies of the other queue are equal, or there is none."""
        return not self._differing()

    def judge(self) -> None:
        """Checks the other queue when all is quiet.

        Raises:
            BrokenPromiseError: a copy of the other queue differs, and does not say so.
        """
        differing = self._differing()
        for host in differing:
            sink = self._hosts[host].sink
            if sink is None or not any(stop.name == OTHER for stop in sink.stops):
                text = f"host {host} has not what the other queue holds, and does not say why"
                raise BrokenPromiseError("reload", text)
        if self._master_of_other is not None and not any(self._led.power_cuts.values()):
            found = content(self._hosts[self._master_of_other].machine.path / OTHER)
            if found != self._written:
                raise BrokenPromiseError("reload", "the other queue is not as it was written")

    def _differing(self) -> list[int]:
        master = self._master_of_other
        if master is None or OTHER not in self._led.files[master].masters:
            return []
        found = content(self._hosts[master].machine.path / OTHER)
        return [
            host
            for host, each in self._hosts.items()
            if content(each.machine.path / OTHER) != found
        ]
