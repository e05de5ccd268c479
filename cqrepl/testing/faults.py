"""Does to a cluster what a plan says."""

import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio

from cqrepl.net.wordwatch import word_watch
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.read.count import count_in
from cqrepl.queue.write.retention import Policy, remove
from cqrepl.surroundings import within
from cqrepl.testing.causes import CLOCKS_DIFFER_SECONDS, Cause
from cqrepl.testing.checker import BrokenPromiseError, content, is_readable
from cqrepl.testing.cluster import Cluster, Stream
from cqrepl.testing.electedoperator import ElectedOperator
from cqrepl.testing.electedqueue import ElectedQueue
from cqrepl.testing.experiment import OwnFault
from cqrepl.testing.faultkinds import BY_OPERATORS
from cqrepl.testing.labhosts import Copy, fill_with_others
from cqrepl.testing.labmachine import Machine, Process, copy_directory
from cqrepl.testing.labroles import LIAR_HOST
from cqrepl.testing.liar import Liar
from cqrepl.testing.losses import taking
from cqrepl.testing.network import Link, Weather
from cqrepl.testing.operators import Operator
from cqrepl.testing.plan import SOURCE, Fault, Kind, RunPlan

DIES_WITHIN_SECONDS: Final = 3.0  # or it is killed where it stands
FLIPS_WITHIN_SECONDS: Final = 3.0
_ENDS_SECONDS: Final = 3.0
_ENDS_SECONDS_MAX: Final = 60.0
_KEPT_CYCLES: Final = 2
_SEEN_CYCLES: Final = 7  # the newest ones, which may have been closed just now
_CLOSED_AFTER_SECONDS: Final = 7.0  # of cycles that last a second
FLOOD: Final = 100  # excerpts
FLOOD_FILLING: Final = b"~" * 4000


class Mortal(Protocol):
    """The process of a host or of a service, which can be ended and started."""

    @property
    def machine(self) -> Machine:
        """The machine that it runs on."""

    @property
    def process(self) -> Process | None:
        """The process, while there is one."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def freeze(self) -> Process | None: ...
    def thaw(self, process: Process) -> None: ...
    def stop(self) -> None: ...
    def power_cut(self) -> None: ...


class Injector:
    """Injects the faults of one plan into one cluster; `injected` counts them by kind.

    Args:
        own: the faults of a user, by their names.
    """

    def __init__(
        self, plan: RunPlan, cluster: Cluster, own: Mapping[str, OwnFault] | None = None
    ) -> None:
        self.injected: Counter[str] = Counter()
        self._plan = plan
        self._cluster = cluster
        self._faults = own or {}
        self._liars: Machine | None = None
        self.operators = {
            group: (ElectedOperator if isinstance(led, ElectedQueue) else Operator)(
                led, cluster.hosts, cluster.network, cluster.story, self._cut_power, self._start
            )
            for group, led in cluster.led.items()
        }

    async def inject(self, fault: Fault) -> None:
        """Waits for the time of a fault; returns when it is over."""
        await trio.sleep_until(fault.at)
        self.injected[fault.own or fault.kind.value] += 1
        self._cluster.story.tell("fault", str(fault))
        await self.ACTS[fault.kind](self, fault)

    def _mortal(self, fault: Fault) -> Mortal:
        """The replication of a host, or a service."""
        service = self._cluster.scene.services.get(fault.host)
        return self._cluster.hosts[fault.host] if service is None else service.life

    def _copy(self, fault: Fault) -> Copy:
        """The copy of the queue that a fault is about."""
        return self._cluster.hosts[fault.host].copies[self._stream(fault).master]

    def _stream(self, fault: Fault) -> Stream:
        """The stream of the queue that a fault is about."""
        return self._cluster.streams[fault.queue or SOURCE]

    async def _kill(self, fault: Fault) -> None:
        await self._dead(fault, self._mortal(fault).kill)

    async def _dead(self, fault: Fault, die: Callable[[], None]) -> None:
        """A process dies, and is started again when the fault is over."""
        die()
        await trio.sleep(fault.lasting)
        self._mortal(fault).start()

    async def _kill_at_call(self, fault: Fault) -> None:
        mortal = self._mortal(fault)
        await _dies(mortal, fault.nth, mortal.kill, at_disk=False)
        await self._dead(fault, lambda: None)

    async def _freeze(self, fault: Fault) -> None:
        mortal = self._mortal(fault)
        process = mortal.freeze()
        try:
            await trio.sleep(fault.lasting)
        finally:  # a run that breaks ends only once all tasks have
            if process is not None:
                mortal.thaw(process)

    async def _stop(self, fault: Fault) -> None:
        mortal = self._mortal(fault)
        process = mortal.process
        mortal.stop()
        await trio.sleep(_ENDS_SECONDS)
        with trio.move_on_after(_ENDS_SECONDS_MAX):  # its disk may be slow
            while process is not None and mortal.process is process:
                await trio.sleep(0.1)
        if process is not None and mortal.process is process:
            text = f"{mortal.machine.name} has not ended within {_ENDS_SECONDS_MAX:g} s"
            raise BrokenPromiseError("ending", text)
        await self._dead(fault, lambda: None)

    async def _power_cut(self, fault: Fault) -> None:
        mortal = self._mortal(fault)
        is_host = fault.host in self._cluster.hosts
        cut = partial(self._cut_power, fault.host) if is_host else mortal.power_cut
        if fault.kind is Kind.POWER_CUT_AT_CALL:
            await _dies(mortal, fault.nth, cut, at_disk=True)
        else:
            cut()
        await trio.sleep(fault.lasting)
        if is_host:
            self._start(fault.host)
        else:
            mortal.start()

    def _start(self, host: int) -> None:
        """A host starts, and the applications of its machine that are dead."""
        for led in self._cluster.led.values():
            led.applications[host].go_on()
        own = self._cluster.streams.get(host)
        if own is not None:
            own.application.restart()
        self._cluster.hosts[host].start()

    def _cut_power(self, host: int) -> None:
        """Cuts the power of one host; it starts again when it is told to."""
        there = self._cluster.hosts[host]
        with ExitStack() as losses:
            for led in self._cluster.led.values():
                losses.enter_context(led.losing_power(host))
            for stream in self._cluster.streams.values():
                losses.enter_context(taking(stream, there.copies[stream.master], Kind.POWER_CUT))
            there.power_cut()

    async def _disk_error(self, fault: Fault) -> None:
        self._mortal(fault).machine.fail_in(fault.nth)

    async def _disk_full(self, fault: Fault) -> None:
        machine = self._mortal(fault).machine
        machine.is_full = True
        await trio.sleep(fault.lasting)
        machine.is_full, machine.slow_s = False, 0.0

    async def _disk_slow(self, fault: Fault) -> None:
        machine = self._mortal(fault).machine
        machine.slow_s = fault.lasting / 4
        await trio.sleep(fault.lasting)
        machine.is_full, machine.slow_s = False, 0.0

    async def _clock_step(self, fault: Fault) -> None:
        self._mortal(fault).machine.skew_ns += int(fault.step_s * 1e9)
        if abs(fault.step_s) > CLOCKS_DIFFER_SECONDS:
            cause = Cause(fault.kind, fault.host, 0)
            for stream in self._cluster.streams.values():
                stream.causes.append(cause)
            for led in self._cluster.led.values():
                led.causes.append(cause)

    async def _act(self, fault: Fault) -> None:
        """As an operator."""
        await self.operators[fault.queue or SOURCE].act(fault)

    async def _own(self, fault: Fault) -> None:
        await self._faults[fault.own](self._cluster.scene, fault)

    async def _kill_application(self, fault: Fault) -> None:
        self._stream(fault).application.kill()

    async def _lie(self, fault: Fault) -> None:
        await self._liar(fault).run(fault.lasting)

    async def _flip(self, fault: Fault) -> None:
        """Changes a bit of the last excerpt, before its copy has read it from the file."""
        copy, stream = self._copy(fault), self._stream(fault)
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

    async def _with_source_dead(self, fault: Fault, change: Callable[[], None]) -> None:
        """An operator changes something while a host does not run."""
        host = self._cluster.hosts[fault.host]
        host.kill()
        change()
        await trio.sleep(fault.lasting)
        host.start()

    async def _anew(self, fault: Fault) -> None:
        await self._with_source_dead(fault, partial(self._make_anew, fault))

    def _make_anew(self, fault: Fault) -> None:
        copy, stream = self._copy(fault), self._stream(fault)
        application, written = stream.application, stream.application.written
        with taking(stream, copy, fault.kind):
            _remove(copy.path)
        application.restart()
        before = written.copy()
        written.begin_anew()
        application.append()
        if written.newest:
            for sink in stream.sinks:
                sink.holds_others = True
        else:  # its disk was in trouble: an empty queue takes back what its sinks have
            written.go_back(before)

    async def _foreign(self, fault: Fault) -> None:
        await self._with_source_dead(fault, partial(self._put_another, fault))

    def _put_another(self, fault: Fault) -> None:
        copy, stream = self._copy(fault), self._stream(fault)
        with taking(stream, copy, fault.kind):
            _remove(copy.path)
        fill_with_others(copy, self._plan.roll_cycle)
        copy.holds_others = True

    async def _same_directory(self, fault: Fault) -> None:
        await self._with_source_dead(fault, partial(self._lead_into_source, fault))

    def _lead_into_source(self, fault: Fault) -> None:
        copy, stream = self._copy(fault), self._stream(fault)
        with taking(stream, copy, fault.kind):
            _remove(copy.path)
        source = stream.source
        disk = source.host.machine.disk.relative_to(self._cluster.folder)
        copy.path.symlink_to(Path("..", "..", disk, source.path.name))

    async def _ack_log(self, fault: Fault) -> None:
        copy = self._copy(fault)

        def log() -> None:
            copy.host.ack_log = copy.path

        await self._with_source_dead(fault, log)
        await trio.sleep(fault.lasting + 1.0)
        copy.host.ack_log = None  # the operator has read why it does not start

    async def _restore(self, fault: Fault) -> None:
        copy, stream = self._copy(fault), self._stream(fault)
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

    async def _collect(self, fault: Fault) -> None:
        """Does what `cqrepl gc --apply` does, in a process of its own."""
        copy, stream = self._copy(fault), self._stream(fault)
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

    async def _remove_one(self, fault: Fault) -> None:
        copy, stream = self._copy(fault), self._stream(fault)
        if copy.path.is_symlink():
            return  # it would be a file of the source
        # a host cannot tell of a file that went before it had looked at it
        files = sorted(copy.path.glob("*.cq4"))[1:-_SEEN_CYCLES]
        file = files[len(files) // 2] if files else None
        if file is not None and _holds_excerpts(file):
            with taking(stream, copy, Kind.FILE_GONE):
                file.unlink()
            copy.host.tell("a store file in the middle is removed")

    async def _put_back_one(self, fault: Fault) -> None:
        """Puts a store file back as it was before it was closed. With a long roll cycle no file has
        been closed by then, and nothing is done."""
        copy, stream = self._copy(fault), self._stream(fault)
        if copy.path.is_symlink():
            return  # it would be a file of the source
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

    async def _move_away(self, fault: Fault) -> None:
        """The process goes on; one that is started meanwhile makes a new copy, which goes."""
        copy, stream = self._copy(fault), self._stream(fault)
        if copy.path.is_symlink() or not copy.path.exists():
            return  # it is no queue, or there is nothing yet
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

    async def _flood(self, fault: Fault) -> None:
        """Two hosts have more for each other than goes into a socket; of one queue, who leads."""
        payloads = [b"%d of a flood " % nth + FLOOD_FILLING for nth in range(FLOOD)]
        for led in self._cluster.led.values():
            for writer in sorted(led.writers):
                led.applications[writer].flood(payloads)
        if self._cluster.led:
            return
        for host in (fault.host, fault.peer):
            self._cluster.streams[host].application.append(payloads)
        word_watch().look()

    def _ways(self, fault: Fault) -> tuple[Weather, Weather]:
        """From the one host to the other, and back."""
        network = self._cluster.network
        there, back = (
            network.weather(fault.host, fault.peer),
            network.weather(fault.peer, fault.host),
        )
        return there, back

    async def _clears(self, fault: Fault) -> None:
        await trio.sleep(fault.lasting)
        for way in self._ways(fault):
            way.clear()

    async def _stall(self, fault: Fault) -> None:
        for way in self._ways(fault):
            way.stall()
        await self._clears(fault)

    async def _stall_one_way(self, fault: Fault) -> None:
        way, _ = self._ways(fault)  # the way back is another fault's
        way.stall()
        await trio.sleep(fault.lasting)
        way.clear()

    async def _swallow(self, fault: Fault) -> None:
        self._ways(fault)[0].is_swallowing = True
        await self._clears(fault)
        await self._cut(fault)  # what was lost on the way, the system would send again

    async def _split(self, fault: Fault) -> None:
        self._ways(fault)[0].is_splitting = True
        await self._clears(fault)

    async def _slow(self, fault: Fault) -> None:
        for way in self._ways(fault):
            way.delay_s = (0.05, 0.4)
        await self._clears(fault)

    async def _cut_inside(self, fault: Fault) -> None:
        self._cluster.network.cut_after(fault.nth, fault.host, fault.peer)

    async def _cut(self, fault: Fault) -> None:
        """Cuts what is between the two hosts, whichever dialled."""
        pair = {fault.host, fault.peer}

        def is_between(link: Link) -> bool:
            return set(link.hosts) == pair

        self._cluster.network.cut(is_between)

    # by kinds of faults: the work of one. Every kind is here, which a test says
    ACTS: Final[Mapping[Kind, Callable[["Injector", Fault], Awaitable[None]]]] = {
        Kind.KILL: _kill,
        Kind.KILL_AT_CALL: _kill_at_call,
        Kind.KILL_APPLICATION: _kill_application,
        Kind.FREEZE: _freeze,
        Kind.STOP: _stop,
        Kind.CUT: _cut,
        Kind.STALL: _stall,
        Kind.STALL_ONE_WAY: _stall_one_way,
        Kind.SWALLOW: _swallow,
        Kind.SPLIT: _split,
        Kind.SLOW: _slow,
        Kind.DISK_FULL: _disk_full,
        Kind.DISK_ERROR: _disk_error,
        Kind.DISK_SLOW: _disk_slow,
        Kind.BIT_FLIP: _flip,
        Kind.CLOCK_STEP: _clock_step,
        Kind.LIAR: _lie,
        Kind.POWER_CUT: _power_cut,
        Kind.POWER_CUT_AT_CALL: _power_cut,
        Kind.GC: _collect,
        Kind.ANEW: _anew,
        Kind.RESTORED: _restore,
        Kind.FOREIGN: _foreign,
        Kind.SAME_DIRECTORY: _same_directory,
        Kind.FILE_GONE: _remove_one,
        Kind.FILE_OLD: _put_back_one,
        Kind.MOVED_AWAY: _move_away,
        Kind.ACK_LOG: _ack_log,
        Kind.INTRUDER: _lie,
        Kind.CUT_INSIDE: _cut_inside,
        Kind.FLOOD: _flood,
        Kind.OWN: _own,
        **dict.fromkeys(BY_OPERATORS, _act),
    }


async def _dies(mortal: Mortal, calls: int, die: Callable[[], None], *, at_disk: bool) -> None:
    """A process dies at one of its next calls; or where it stands, if none comes, or if there is no
    process."""
    process = mortal.process
    if process is None:
        die()
        return
    process.die_in(calls, die, at_disk=at_disk)
    with trio.move_on_after(DIES_WITHIN_SECONDS):
        while mortal.process is process:
            await trio.sleep(0.05)
    if mortal.process is process:
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
