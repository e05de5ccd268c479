"""Does to a cluster what a plan says."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.net.wordwatch import word_watch
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.read.count import count_in
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.surroundings import within
from cqrepl.testing.causes import CLOCKS_DIFFER_SECONDS, Cause
from cqrepl.testing.checker import BrokenPromiseError, content, is_readable
from cqrepl.testing.cluster import Cluster, Stream
from cqrepl.testing.labhosts import Copy, LabHost, fill_with_others
from cqrepl.testing.labmachine import Machine, copy_directory
from cqrepl.testing.labroles import LIAR_HOST
from cqrepl.testing.liar import Liar
from cqrepl.testing.losses import taking
from cqrepl.testing.network import Link
from cqrepl.testing.operators import Operator
from cqrepl.testing.plan import AT_LINKS, BY_OPERATORS, SOURCE, Fault, Kind, RunPlan

DIES_WITHIN_SECONDS: Final = 3.0  # or it is killed where it stands
FLIPS_WITHIN_SECONDS: Final = 3.0
_ENDS_SECONDS: Final = 3.0
_ENDS_SECONDS_MAX: Final = 60.0
_KEPT_CYCLES: Final = 2
_SEEN_CYCLES: Final = 7  # the newest ones, which may have been closed just now
_CLOSED_AFTER_SECONDS: Final = 7.0  # of cycles that last a second
FLOOD: Final = 100  # excerpts
FLOOD_FILLING: Final = b"~" * 4000


class Injector:
    """Injects the faults of one plan into one cluster; `injected` counts them by kind."""

    def __init__(self, plan: RunPlan, cluster: Cluster) -> None:
        self.injected: Counter[str] = Counter()
        self._plan = plan
        self._cluster = cluster
        self._liars: Machine | None = None
        self.operator = (
            None
            if cluster.led is None
            else Operator(cluster.led, cluster.hosts, cluster.network, cluster.story)
        )

    async def inject(self, fault: Fault) -> None:
        """Waits for the time of a fault; returns when it is over."""
        await trio.sleep_until(fault.at)
        self.injected[fault.kind.value] += 1
        self._cluster.story.tell("fault", str(fault))
        host = self._cluster.hosts[fault.host]
        match fault.kind:
            case Kind.KILL | Kind.STOP | Kind.FREEZE | Kind.KILL_AT_CALL:
                await self._end(fault, host)
            case Kind.POWER_CUT | Kind.POWER_CUT_AT_CALL:
                await self._power_cut(fault, host)
            case Kind.DISK_FULL | Kind.DISK_ERROR | Kind.DISK_SLOW:
                await self._trouble_disk(fault, host.machine)
            case Kind.CLOCK_STEP:
                host.machine.skew_ns += int(fault.step_s * 1e9)
                if abs(fault.step_s) > CLOCKS_DIFFER_SECONDS:
                    for stream in self._cluster.streams.values():
                        stream.causes.append(Cause(fault.kind, fault.host, 0))
            case Kind.FLOOD:
                self._flood(fault)
            case Kind.CUT_INSIDE:
                self._cluster.network.cut_after(fault.nth, fault.host, fault.peer)
            case Kind.CUT:
                self._cut(fault)
            case kind if kind in AT_LINKS:
                await self._weather(fault)
            case kind if kind in BY_OPERATORS:
                assert self.operator is not None
                await self.operator.act(fault)
            case _:
                await self._at_queue(fault, host)

    async def _at_queue(self, fault: Fault, host: LabHost) -> None:
        """At one queue of one host, or at who writes it."""
        stream = self._stream(fault)
        copy = host.copies[stream.master]
        match fault.kind:
            case Kind.KILL_APPLICATION:
                stream.application.kill()
            case Kind.BIT_FLIP:
                await self._flip(copy, stream)
            case Kind.LIAR | Kind.INTRUDER:
                await self._liar(fault).run(fault.lasting)
            case Kind.GC:
                self._collect(copy, stream)
            case Kind.ANEW | Kind.RESTORED | Kind.FOREIGN | Kind.SAME_DIRECTORY | Kind.ACK_LOG:
                await self._operate(fault, copy, stream)
            case Kind.FILE_GONE | Kind.FILE_OLD | Kind.MOVED_AWAY if copy.path.is_symlink():
                pass  # it would be a file of the source, or no queue
            case Kind.FILE_GONE:
                self._remove_one(copy, stream)
            case Kind.FILE_OLD:
                await self._put_back_one(fault, copy, stream)
            case Kind.MOVED_AWAY if copy.path.exists():
                await self._move_away(fault, copy, stream)
            case _:
                assert fault.kind is Kind.MOVED_AWAY  # and there is nothing yet

    def _stream(self, fault: Fault) -> Stream:
        """The stream of the queue that a fault is about."""
        return self._cluster.streams[fault.queue or SOURCE]

    async def _end(self, fault: Fault, host: LabHost) -> None:
        match fault.kind:
            case Kind.FREEZE:
                process = host.freeze()
                await trio.sleep(fault.lasting)
                if process is not None:
                    host.thaw(process)
                return
            case Kind.KILL_AT_CALL if host.process is not None:
                await _dies(host, fault.nth, host.kill, at_disk=False)
            case Kind.STOP:
                process = host.process
                host.stop()
                await trio.sleep(_ENDS_SECONDS)
                with trio.move_on_after(_ENDS_SECONDS_MAX):  # its disk may be slow
                    while process is not None and host.process is process:
                        await trio.sleep(0.1)
                if process is not None and host.process is process:
                    text = f"{host.machine.name} has not ended within {_ENDS_SECONDS_MAX:g} s"
                    raise BrokenPromiseError("ending", text)
            case _:
                host.kill()
        await trio.sleep(fault.lasting)
        host.start()

    async def _power_cut(self, fault: Fault, host: LabHost) -> None:
        own = self._cluster.streams.get(fault.host)
        cut = partial(self._cut_power, host)
        if fault.kind is Kind.POWER_CUT_AT_CALL and host.process is not None:
            await _dies(host, fault.nth, cut, at_disk=True)
        else:
            cut()
        await trio.sleep(fault.lasting)
        if self._cluster.led is not None:
            self._cluster.led.applications[fault.host].go_on()
        if own is not None:
            own.application.restart()
        host.start()

    def _cut_power(self, host: LabHost) -> None:
        if self.operator is not None:
            self.operator.power_cut(host.host)
            return
        with ExitStack() as losses:
            for stream in self._cluster.streams.values():
                copy = host.copies[stream.master]
                losses.enter_context(taking(stream, copy, Kind.POWER_CUT))
            host.power_cut()

    async def _trouble_disk(self, fault: Fault, machine: Machine) -> None:
        match fault.kind:
            case Kind.DISK_ERROR:
                machine.fail_in(fault.nth)
                return
            case Kind.DISK_FULL:
                machine.is_full = True
            case _:
                machine.slow_s = fault.lasting / 4
        await trio.sleep(fault.lasting)
        machine.is_full, machine.slow_s = False, 0.0

    async def _flip(self, copy: Copy, stream: Stream) -> None:
        """Changes a bit of the last excerpt, before its copy has read it from the file."""
        with trio.move_on_after(FLIPS_WITHIN_SECONDS):
            rng = random.Random(f"flip {self._plan.seed}")
            while not (copy.holds_unread and copy.flip_last(rng)):
                await trio.sleep(0.01)
        if copy.flipped_at is not None:
            cause = Cause(Kind.BIT_FLIP, copy.host.host, copy.flipped_at)
            stream.causes.append(cause)

    def _liar(self, fault: Fault) -> Liar:
        if self._liars is None:
            story, folder = self._cluster.story, self._cluster.folder / "liar"
            self._liars = Machine(LIAR_HOST, folder, random.Random(LIAR_HOST), story)
        rng = random.Random(f"lies {self._plan.seed} {fault.at}")
        intrudes = fault.kind is Kind.INTRUDER
        copy = self._stream(fault).source
        return Liar(self._liars, fault.host, copy.name, rng, self._cluster.story, intrudes=intrudes)

    # ---- what operators do -----------------------------------------------------------------------

    async def _operate(self, fault: Fault, copy: Copy, stream: Stream) -> None:
        application, source, host = stream.application, stream.source, copy.host
        if fault.kind is Kind.RESTORED:
            await self._restore(fault, copy, stream)
            return
        host.kill()
        match fault.kind:
            case Kind.ANEW:
                with taking(stream, copy, fault.kind):
                    _remove(copy.path)
                application.restart()
                written = application.written
                before = written.digests.copy(), written.newest.copy()
                written.begin_anew()
                application.append()
                if written.newest:
                    for sink in stream.sinks:
                        sink.holds_others = True
                else:  # its disk was in trouble: an empty queue takes back what its sinks have
                    written.digests, written.newest = before
            case Kind.FOREIGN:
                with taking(stream, copy, fault.kind):
                    _remove(copy.path)
                fill_with_others(copy, self._plan.roll_cycle)
                copy.holds_others = True
            case Kind.SAME_DIRECTORY:
                with taking(stream, copy, fault.kind):
                    _remove(copy.path)
                disk = source.host.machine.disk.relative_to(self._cluster.folder)
                copy.path.symlink_to(Path("..", "..", disk, source.path.name))
            case Kind.ACK_LOG:
                host.ack_log = copy.path
        await trio.sleep(fault.lasting)
        host.start()
        if fault.kind is Kind.ACK_LOG:
            await trio.sleep(fault.lasting + 1.0)
            host.ack_log = None  # the operator has read why it does not start

    async def _restore(self, fault: Fault, copy: Copy, stream: Stream) -> None:
        backup, written = f"backup of {fault.at}", stream.written
        host = copy.host
        copy_directory(copy.path, host.machine.path / backup)
        queues = written.queues
        await trio.sleep(fault.lasting + 1.0)
        if written.queues != queues:
            return  # another queue was begun meanwhile: what the backup holds belongs nowhere
        host.kill()  # the disk goes on elsewhere
        with taking(stream, copy, fault.kind):
            _remove(copy.path)
            (host.machine.path / backup).rename(copy.path)
        stream.application.restart()
        host.start()

    def _collect(self, copy: Copy, stream: Stream) -> None:
        """Does what `cqrepl gc --apply` does, in a process of its own."""
        host = copy.host
        process = host.machine.start("gc")
        before = _content(copy.path)
        with within(process):
            process.give_time()
            try:
                with Queue.open(copy.path) as queue:
                    gone = remove(queue.cycles, Policy(cycles_min=_KEPT_CYCLES))
            except (QueueError, OSError) as error:
                host.tell(f"gc: {error}")
            else:
                host.tell(f"gc removes {len(gone)} files")
                removed = before.keys() - _content(copy.path).keys() if gone else ()
                written = stream.written
                written.collected |= {index: before[index] for index in removed}
        host.machine.alive.discard(process.pid)

    def _remove_one(self, copy: Copy, stream: Stream) -> None:
        # a host cannot tell of a file that went before it had looked at it
        files = sorted(copy.path.glob("*.cq4"))[1:-_SEEN_CYCLES]
        file = files[len(files) // 2] if files else None
        if file is not None and _holds_excerpts(file):
            with taking(stream, copy, Kind.FILE_GONE):
                file.unlink()
            copy.host.tell("a store file in the middle is removed")

    async def _put_back_one(self, fault: Fault, copy: Copy, stream: Stream) -> None:
        """Puts a store file back as it was before it was closed. With a long roll cycle no file has
        been closed by then, and nothing is done."""
        host = copy.host
        name = max((file.name for file in copy.path.glob("*.cq4")), default="")
        content = (copy.path / name).read_bytes() if name else b""
        process = host.process
        await trio.sleep(fault.lasting + _CLOSED_AFTER_SECONDS)
        if host.process is not process or not _is_noted(copy.path, name):
            return  # the host has not looked at it since it was closed
        later = [file for file in copy.path.glob("*.cq4") if file.name > name]
        if name and later and (copy.path / name).exists():
            new = copy.path / f"{name}.old"
            new.write_bytes(content)
            with taking(stream, copy, fault.kind):
                new.rename(copy.path / name)
            host.tell("an older store file is put in its place")

    async def _move_away(self, fault: Fault, copy: Copy, stream: Stream) -> None:
        """The process goes on; one that is started meanwhile makes a new copy, which goes."""
        host = copy.host
        name = f"{copy.name} of {fault.at}"
        with taking(stream, copy, fault.kind):
            copy.path.rename(host.machine.path / name)
        host.machine.names_synced()
        await trio.sleep(fault.lasting)
        host.kill()  # the disk goes on elsewhere
        with taking(stream, copy, fault.kind):
            _remove(copy.path)
            (host.machine.path / name).rename(copy.path)
        host.machine.names_synced()
        host.start()

    # ---- links -----------------------------------------------------------------------------------

    def _flood(self, fault: Fault) -> None:
        """Two hosts have more for each other than goes into a socket; of one queue, who leads."""
        payloads = [b"%d of a flood " % nth + FLOOD_FILLING for nth in range(FLOOD)]
        led = self._cluster.led
        if led is not None:
            for writer in sorted(led.writers):
                led.applications[writer].flood(payloads)
            return
        for host in (fault.host, fault.peer):
            self._cluster.streams[host].application.append(payloads)
        word_watch().look()

    async def _weather(self, fault: Fault) -> None:
        there = self._cluster.network.weather(fault.host, fault.peer)
        back = self._cluster.network.weather(fault.peer, fault.host)
        match fault.kind:
            case Kind.STALL:
                there.stall()
                back.stall()
            case Kind.STALL_ONE_WAY:
                there.stall()
            case Kind.SWALLOW:
                there.is_swallowing = True
            case Kind.SPLIT:
                there.is_splitting = True
            case Kind.SLOW:
                there.delay_s = back.delay_s = (0.05, 0.4)
        await trio.sleep(fault.lasting)
        there.clear()
        back.clear()
        if fault.kind is Kind.SWALLOW:  # what was lost on the way, the system would send again
            self._cut(fault)

    def _cut(self, fault: Fault) -> None:
        """Cuts what is between the two hosts, whichever dialled."""
        pair = {fault.host, fault.peer}

        def is_between(link: Link) -> bool:
            return set(link.hosts) == pair

        self._cluster.network.cut(is_between)


async def _dies(host: LabHost, calls: int, die: Callable[[], None], *, at_disk: bool) -> None:
    """A host's process dies at one of its next calls; or where it stands, if none comes."""
    process = host.process
    assert process is not None
    process.die_in(calls, die, at_disk=at_disk)
    with trio.move_on_after(DIES_WITHIN_SECONDS):
        while host.process is process:
            await trio.sleep(0.05)
    if host.process is process:
        die()


def _content(path: Path) -> dict[int, bytes]:
    return content(path) if is_readable(path) else {}


def _remove(directory: Path) -> None:
    """A queue's directory, or the link that stands in its place."""
    if directory.is_symlink():
        directory.unlink()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _holds_excerpts(file: Path) -> bool:
    """False for a store file that a power cut has left empty: no host misses it."""
    try:
        with Queue.open(file.parent) as queue:
            cycle = queue.cycles.cycle_of(file.stem)
            return cycle is not None and count_in(queue.cycles, cycle) > 0
    except QueueError:
        return True  # it cannot be read as it is


def _is_noted(path: Path, name: str) -> bool:
    """True when a host has noted what a closed store file holds: only then can it miss anything."""
    with suppress(QueueError, OSError), Queue.open(path) as queue:
        return name in {queue.cycles.path_of(cycle).name for cycle in queue.cycles.closed.load()}
    return False
