"""Does to a cluster what a plan says."""

import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.read.count import count_in
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.surroundings import within
from cqrepl.testing.checker import BrokenPromiseError, content, is_readable, last_index
from cqrepl.testing.cluster import Cluster
from cqrepl.testing.labhosts import PORT, QUEUE, LabHost, fill_with_others
from cqrepl.testing.labmachine import Machine, copy_directory
from cqrepl.testing.liar import HOST as LIAR_HOST
from cqrepl.testing.liar import Liar
from cqrepl.testing.network import Link
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan

DIES_WITHIN_SECONDS: Final = 3.0  # or it is killed where it stands
FLIPS_WITHIN_SECONDS: Final = 3.0
_ENDS_SECONDS: Final = 3.0
_ENDS_SECONDS_MAX: Final = 60.0
_KEPT_CYCLES: Final = 2
_SEEN_CYCLES: Final = 7  # the newest ones, which may have been closed just now
_CLOSED_AFTER_SECONDS: Final = 7.0  # of cycles that last a second


class Injector:
    """Injects the faults of one plan into one cluster; `injected` counts them by kind."""

    def __init__(self, plan: RunPlan, cluster: Cluster) -> None:
        self.injected: Counter[str] = Counter()
        self._plan = plan
        self._cluster = cluster
        self._liars: Machine | None = None

    async def inject(self, fault: Fault) -> None:
        """Waits for the time of a fault; returns when it is over."""
        await trio.sleep_until(fault.at)
        self.injected[fault.kind.value] += 1
        self._cluster.story.tell("fault", str(fault))
        host = self._cluster.hosts[fault.host]
        match fault.kind:
            case Kind.KILL | Kind.STOP | Kind.FREEZE | Kind.KILL_AT_CALL:
                await self._end(fault, host)
            case Kind.KILL_APPLICATION:
                self._cluster.application.kill()
            case Kind.POWER_CUT:
                await self._power_cut(fault, host)
            case Kind.BIT_FLIP:
                await self._flip(host)
            case Kind.DISK_FULL | Kind.DISK_ERROR | Kind.DISK_SLOW:
                await self._trouble_disk(fault, host.machine)
            case Kind.CLOCK_STEP:
                host.machine.skew_ns += int(fault.step_s * 1e9)
            case Kind.LIAR | Kind.INTRUDER:
                await self._liar(fault).run(fault.lasting)
            case Kind.GC:
                self._collect(host)
            case Kind.ANEW | Kind.RESTORED | Kind.FOREIGN | Kind.SAME_DIRECTORY | Kind.ACK_LOG:
                await self._operate(fault, host)
            case Kind.FILE_GONE | Kind.FILE_OLD | Kind.MOVED_AWAY if host.path.is_symlink():
                pass  # it would be a file of the source, or no queue
            case Kind.FILE_GONE:
                self._remove_one(host)
            case Kind.FILE_OLD:
                await self._put_back_one(fault, host)
            case Kind.MOVED_AWAY if host.path.exists():
                await self._move_away(fault, host)
            case Kind.MOVED_AWAY:
                pass  # there is nothing yet
            case Kind.CUT:
                self._cut(fault)
            case _:
                await self._weather(fault)

    async def _end(self, fault: Fault, host: LabHost) -> None:
        match fault.kind:
            case Kind.FREEZE:
                process = host.freeze()
                await trio.sleep(fault.lasting)
                if process is not None:
                    host.thaw(process)
                return
            case Kind.KILL_AT_CALL if host.process is not None:
                process = host.process
                process.die_in(fault.nth, host.kill)
                with trio.move_on_after(DIES_WITHIN_SECONDS):
                    while host.process is process:
                        await trio.sleep(0.05)
                if host.process is process:
                    host.kill()
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
        if fault.host == SOURCE:
            acknowledged = max(host.known_of(each) or -1 for each in self._cluster.sinks)
            last = last_index(host.path)
            self._cluster.application.written.may_be_torn(acknowledged + 1, last)
        host.power_cut()
        await trio.sleep(fault.lasting)
        if fault.host == SOURCE:
            self._cluster.application.restart()
        host.start()

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

    async def _flip(self, host: LabHost) -> None:
        """Changes a bit of the last excerpt, before its copy has read it from the file."""
        with trio.move_on_after(FLIPS_WITHIN_SECONDS):
            rng = random.Random(f"flip {self._plan.seed}")
            while not (host.holds_unread and host.flip_last(rng)):
                await trio.sleep(0.01)

    def _liar(self, fault: Fault) -> Liar:
        if self._liars is None:
            story, folder = self._cluster.story, self._cluster.folder / "liar"
            self._liars = Machine(LIAR_HOST, folder, random.Random(LIAR_HOST), story)
        rng = random.Random(f"lies {self._plan.seed} {fault.at}")
        intrudes = fault.kind is Kind.INTRUDER
        return Liar(self._liars, QUEUE, PORT, rng, self._cluster.story, intrudes=intrudes)

    # ---- what operators do -----------------------------------------------------------------------

    async def _operate(self, fault: Fault, host: LabHost) -> None:
        application, source = self._cluster.application, self._cluster.source
        if fault.kind is Kind.RESTORED:
            await self._restore(fault, host)
            return
        host.kill()
        match fault.kind:
            case Kind.ANEW:
                _remove(host.path)
                application.restart()
                written = application.written
                before = written.digests.copy(), written.newest.copy()
                written.begin_anew()
                application.append()
                if written.newest:
                    for sink in self._cluster.sinks:
                        sink.holds_others = True
                else:  # its disk was in trouble: an empty queue takes back what its sinks have
                    written.digests, written.newest = before
                    host.was_cut = True
            case Kind.FOREIGN:
                _remove(host.path)
                fill_with_others(host.machine, self._plan.roll_cycle)
                host.holds_others = True
            case Kind.SAME_DIRECTORY:
                _remove(host.path)
                disk = source.machine.disk.relative_to(self._cluster.folder)
                host.path.symlink_to(Path("..", "..", disk, source.path.name))
            case Kind.ACK_LOG:
                host.ack_log = host.path
        await trio.sleep(fault.lasting)
        host.start()
        if fault.kind is Kind.ACK_LOG:
            await trio.sleep(fault.lasting + 1.0)
            host.ack_log = None  # the operator has read why it does not start

    async def _restore(self, fault: Fault, host: LabHost) -> None:
        backup, written = f"backup of {fault.at}", self._cluster.application.written
        copy_directory(host.path, host.machine.path / backup)
        queues = written.queues
        await trio.sleep(fault.lasting + 1.0)
        if written.queues != queues:
            return  # another queue was begun meanwhile: what the backup holds belongs nowhere
        host.kill()  # the disk goes on elsewhere
        _remove(host.path)
        (host.machine.path / backup).rename(host.path)
        self._cluster.application.restart()
        host.was_cut = True
        host.start()

    def _collect(self, host: LabHost) -> None:
        """As `cqrepl gc --apply`, in a process of its own."""
        process = host.machine.start("gc")
        before = _content(host.path)
        with within(process):
            process.give_time()
            try:
                with Queue.open(host.path) as queue:
                    gone = remove(queue.cycles, Policy(cycles_min=_KEPT_CYCLES))
            except (QueueError, OSError) as error:
                self._cluster.story.tell(host.machine.name, f"gc: {error}")
            else:
                self._cluster.story.tell(host.machine.name, f"gc removes {len(gone)} files")
                removed = before.keys() - _content(host.path).keys() if gone else ()
                written = self._cluster.application.written
                written.collected |= {index: before[index] for index in removed}
        host.machine.alive.discard(process.pid)

    def _remove_one(self, host: LabHost) -> None:
        # nobody can tell of a file that went before anybody had looked at it
        files = sorted(host.path.glob("*.cq4"))[1:-_SEEN_CYCLES]
        file = files[len(files) // 2] if files else None
        if file is not None and _holds_excerpts(file):
            file.unlink()
            host.was_cut |= host.host != SOURCE  # that a source lacks it has to be told
            self._cluster.story.tell(host.machine.name, "a store file in the middle is removed")

    async def _put_back_one(self, fault: Fault, host: LabHost) -> None:
        """Of a roll cycle that is long nothing has been closed by then, and nothing is done."""
        name = max((file.name for file in host.path.glob("*.cq4")), default="")
        content = (host.path / name).read_bytes() if name else b""
        process = host.process
        await trio.sleep(fault.lasting + _CLOSED_AFTER_SECONDS)
        if host.process is not process or not _is_noted(host.path, name):
            return  # nobody has looked at it since it was closed
        later = [file for file in host.path.glob("*.cq4") if file.name > name]
        if name and later and (host.path / name).exists():
            new = host.path / f"{name}.old"
            new.write_bytes(content)
            new.rename(host.path / name)
            host.was_cut |= host.host != SOURCE  # that a source lacks it has to be told
            self._cluster.story.tell(host.machine.name, "an older store file is put in its place")

    async def _move_away(self, fault: Fault, host: LabHost) -> None:
        """The process goes on; one that is started meanwhile makes a new copy, which goes."""
        host.was_cut = True
        name = f"{QUEUE} of {fault.at}"
        host.path.rename(host.machine.path / name)
        host.machine.names_synced()
        await trio.sleep(fault.lasting)
        host.kill()  # the disk goes on elsewhere
        _remove(host.path)
        (host.machine.path / name).rename(host.path)
        host.machine.names_synced()
        host.start()

    # ---- links -----------------------------------------------------------------------------------

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


def _content(path: Path) -> dict[int, bytes]:
    return content(path) if is_readable(path) else {}


def _remove(directory: Path) -> None:
    """A queue's directory, or the link that stands in its place."""
    if directory.is_symlink():
        directory.unlink()
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _holds_excerpts(file: Path) -> bool:
    """False for a store file that a power cut has left empty: nobody misses it."""
    try:
        with Queue.open(file.parent) as queue:
            cycle = queue.cycles.cycle_of(file.stem)
            return cycle is not None and count_in(queue.cycles, cycle) > 0
    except QueueError:
        return True  # it cannot be read as it is


def _is_noted(path: Path, name: str) -> bool:
    """Whether a host has noted what a closed store file holds: only then can it miss anything."""
    with suppress(QueueError, OSError), Queue.open(path) as queue:
        return name in {queue.cycles.path_of(cycle).name for cycle in queue.cycles.closed.load()}
    return False
