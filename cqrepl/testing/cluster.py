"""Hosts, the network between them and an application, in the trio run of the caller.

async with running_cluster(folder, 3) as cluster:
    cluster.append(b"hello")
    await cluster.settled()
    cluster.hosts[2].kill()
"""

import random
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.kernel.giventime import give_back_time
from cqrepl.net.program import Program
from cqrepl.net.wordwatch import word_watch
from cqrepl.queue.format.index import format_index
from cqrepl.testing.causes import Cause
from cqrepl.testing.checker import Written, content, last_index
from cqrepl.testing.electedqueue import ElectedQueue
from cqrepl.testing.experiment import NOTHING, Experiment, Scene
from cqrepl.testing.freezer import Freezer
from cqrepl.testing.history import History
from cqrepl.testing.labhosts import (
    BATCHES,
    BATCHES_WITH_BURSTS,
    QUEUE,
    Application,
    Copy,
    LabHost,
    looking,
)
from cqrepl.testing.labmachine import Machine, Process
from cqrepl.testing.labroles import LIAR_HOST, LabFile
from cqrepl.testing.ledqueue import LedQueue, master_of
from cqrepl.testing.network import Network, address_of
from cqrepl.testing.plan import SOURCE, Route, RunPlan
from cqrepl.testing.processlife import ProcessLife
from cqrepl.testing.site import Site, service_machine
from cqrepl.testing.story import Story

LOOK_SECONDS: Final = 0.25
SETTLED_SECONDS: Final = 60.0
RATE: Final = 20.0
_END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Stream:
    """A queue of a cluster: its master's own, the copies of it, and the application that writes.

    Args:
        vias: the ids of hosts that pass it on, by those of the hosts that take it from them.
        causes: the faults that have changed what a copy holds.
        differing: ids of the hosts whose copies say, in the end, why they differ.
    """

    source: Copy
    sinks: list[Copy]
    application: Application
    vias: Mapping[int, int] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    differing: set[int] = field(default_factory=set)

    @property
    def all_copies(self) -> list[Copy]:
        """The source's, and all others."""
        return [self.source, *self.sinks]

    @property
    def written(self) -> Written:
        """All that the application was told was appended."""
        return self.application.written

    @property
    def master(self) -> int:
        """The id of the host whose own it is."""
        return self.source.host.host

    def giver(self, sink: Copy) -> Copy:
        """The copy that another copy is taken from: the source, or a copy that is passed on."""
        via = self.vias.get(sink.host.host)
        return self.source if via is None else self._copy_of(via)

    @property
    def givers(self) -> list[Copy]:
        """The source, and the copies that are passed on."""
        return [self.source, *map(self._copy_of, sorted(set(self.vias.values())))]

    @property
    def direct(self) -> list[Copy]:
        """The copies that are taken from the source."""
        return [each for each in self.sinks if each.host.host not in self.vias]

    def way(self, host: int) -> list[int]:
        """The ids of the hosts by which it comes to one, which is the first."""
        return [host, *(self.way(self.vias.get(host, self.master)) if host != self.master else ())]

    def may_be_flipped(self, copy: Copy) -> bool:
        """True for a copy in which a bit was changed, or that has come by such a one: that is
        found within a second, and may have been passed on by then."""
        hosts = self.way(copy.host.host)[:-1]
        return any(self._copy_of(host).flipped_at is not None for host in hosts)

    def missing(self, sink: Copy) -> str | None:
        """A sentence on what a copy lacks, or its source does not know of it; None for neither."""
        if self.is_settled(sink):
            return None
        held, end, giver = last_index(sink.path), last_index(self.source.path), self.giver(sink)
        name, host = self.source.name, sink.host
        if held != end:
            what = (
                f"lacks of {name!r}: it ends at {_shown(held)}, host {self.master} at {_shown(end)}"
            )
        else:
            known = giver.known_of(sink)
            at = "nothing" if known is None else _shown(known)
            what = f"has all of {name!r}, of which host {giver.host.host} knows {at}"
        return f"host {host.host}{'' if host.process else ', which does not run,'} {what}"

    def _copy_of(self, host: int) -> Copy:
        return next(each for each in self.sinks if each.host.host == host)

    def is_settled(self, sink: Copy) -> bool:
        """True when a copy holds what the source holds, and the host that gives it that knows."""
        giver = self.giver(sink)
        return last_index(sink.path) == last_index(self.source.path) == giver.known_of(sink)


class Cluster:
    """A source, host 1, and sinks, hosts 2 and on, of one queue; or hosts that each stream a queue
    of their own to all others, over one connection for two of them.

    Args:
        folder: where the disks of the hosts are.
        seed: decides how long bytes take, what a power cut leaves, what applications write.
        rate: appends a second, of each application.
        programs: the handlers of its own that a host has, by host id.
        experiment: the parts of a user that take part besides: `scene` has them.
        both_ways: the other kind of cluster.
        changing: a third kind, of queues that other hosts may come to lead: `led` has them.
        groups: how many those are, each of which a host of its own leads first.
        bursts: applications append hundreds of excerpts now and then.
        with_frames: the ids of the hosts that have `--frames`; between all others go runs.
        routes: which hosts take a queue from another one than its master.
        acks: the number of hosts that the policy of a queue whose leader changes waits for.
    """

    def __init__(
        self,
        folder: Path,
        hosts: int,
        nursery: trio.Nursery,
        *,
        seed: int = 0,
        roll_cycle: str = "FAST_DAILY",
        rate: float = RATE,
        story: Story | None = None,
        programs: Mapping[int, Program] | None = None,
        both_ways: bool = False,
        changing: bool = False,
        bursts: bool = False,
        with_frames: Collection[int] = (),
        routes: Collection[Route] = (),
        acks: int = 1,
        groups: int = 1,
        experiment: Experiment = NOTHING,
        plan: RunPlan | None = None,
    ) -> None:
        self.story = Story() if story is None else story
        self.network = Network(nursery, _rng("network", seed), self.story)
        self.hosts: dict[int, LabHost] = {}
        self.folder = folder
        self._nursery = nursery
        self._bursts = bursts
        self._lease, drifts = (0.0, ()) if plan is None else (plan.lease, plan.drifts)
        self._roll_cycle = roll_cycle
        ids = range(1, hosts + 1)
        queues = _queues(hosts if both_ways else groups, has_number=both_ways)
        self._vias: dict[int, dict[int, int]] = {}  # by the masters of the queues
        for route in routes:
            self._vias.setdefault(route.queue, {})[route.host] = route.via
        self._freezer = Freezer()
        trio.lowlevel.add_instrument(self._freezer)
        members = (*ids, LIAR_HOST) if both_ways else tuple(ids)
        policies = dict.fromkeys(queues.values(), acks) if changing else {}
        file = partial(self._file, members, queues, policies, experiment.settings)
        for host in ids:
            self.hosts[host] = LabHost(
                Machine(host, folder / f"host{host}", _rng(f"disk {host}", seed), self.story),
                self.network,
                self._freezer,
                nursery,
                self.story,
                partial(_programs, experiment, dict(programs or {}), host),
                queues=queues,
                file=file() if both_ways or changing else None,
                runs=host not in with_frames,
            )
        for each, drift in zip(self.hosts.values(), drifts, strict=False):
            each.machine.drift = drift
        self.led = self._led_queues(queues if changing else (), rate, seed)
        rngs = {each: _rng(_application(each, both_ways), seed) for each in queues}
        self.streams = {
            master: self._stream(master, name, roll_cycle, rate, rngs[master])
            for master, name in ({} if changing else queues).items()
        }
        self.scene = self._scene(experiment, plan, seed)

    def _file(
        self,
        members: Sequence[int],
        queues: Mapping[int, str],
        acks: Mapping[str, int],
        settings: str,
    ) -> LabFile:
        """The file of the cluster, for one host."""
        ids = [each for each in members if each != LIAR_HOST]
        masters = {name: master_of(each, ids) for each, name in queues.items()}
        routes = {queues[master]: vias for master, vias in self._vias.items()}
        return LabFile(
            hosts=members,
            masters=masters,
            acks=acks,
            routes=routes,
            settings=settings,
            lease=self._lease,
            roll_cycle=self._roll_cycle,
        )

    def _led_queues(self, groups: Iterable[int], rate: float, seed: int) -> dict[int, LedQueue]:
        make = ElectedQueue if self._lease else LedQueue
        return {each: make(self.hosts, self._roll_cycle, rate, seed, each) for each in groups}

    def _scene(self, experiment: Experiment, plan: RunPlan | None, seed: int) -> Scene:
        """The sites of a user, none of which has begun."""
        written = [each.written for each in self.led.values()]
        written += [each.written for each in self.streams.values()]
        for each_written in written:
            each_written.is_open = each_written.is_open or experiment.writes
        history, quiet = History(self.story), trio.Event()
        for led in self.led.values():
            if isinstance(led, ElectedQueue):
                led.history, led.is_alone = history, not experiment.writes
        addresses = {host: address_of(host) for host in self.hosts}
        workloads, services = {}, {}
        for nth, work in enumerate(experiment.services):
            disk = _rng(f"disk of service {nth}", seed)
            machine = service_machine(nth, self.folder, disk, self.story)
            addresses[machine.host] = address_of(machine.host)
            rng = _rng(f"service {nth}", seed)
            services[machine.host] = Site(machine, "service", work, rng, history, quiet, addresses)
        if experiment.workload is not None:
            for host, each in self.hosts.items():
                rng, work = _rng(f"workload {host}", seed), experiment.workload
                workloads[host] = Site(
                    each.machine, "workload", work, rng, history, quiet, addresses, each
                )
        return Scene(
            plan=plan,
            story=self.story,
            history=history,
            quiet=quiet,
            network=self.network,
            hosts=self.hosts,
            workloads=workloads,
            services=services,
            led={each.name: each for each in self.led.values()},
            differing={each.name: each.differing for each in self.led.values()}
            | {each.source.name: each.differing for each in self.streams.values()},
        )

    def _stream(
        self, master: int, name: str, roll_cycle: str, rate: float, rng: random.Random
    ) -> Stream:
        machine = self.hosts[master].machine
        batches = BATCHES_WITH_BURSTS if self._bursts else BATCHES
        return Stream(
            source=self.hosts[master].copies[master],
            sinks=[each.copies[master] for host, each in self.hosts.items() if host != master],
            application=Application(machine, name, roll_cycle, rate, rng, self.story, batches),
            vias=self._vias.get(master, {}),
        )

    def append(self, *payloads: bytes, master: int = SOURCE) -> None:
        """The application of a source's host appends; something of its own without payloads."""
        self.streams[master].application.append(payloads)
        word_watch().look()

    def start(self) -> None:
        """Services start; applications make their queues; all hosts start, and workloads."""
        for site in self.scene.services.values():
            site.begin(self.network, self._freezer, self._nursery)
        for stream in self.streams.values():
            stream.application.append()
        for led in self.led.values():
            led.begin()
        for each in self.hosts.values():
            each.start()
        for host, site in self.scene.workloads.items():
            life = site.begin(self.network, self._freezer, self._nursery)
            self.hosts[host].companions.append(life)

    async def stop(self) -> None:
        """All hosts end in order, and workloads and services."""
        sites = [*self.scene.workloads.values(), *self.scene.services.values()]
        ending: list[LabHost | ProcessLife] = [*self.hosts.values(), *(each.life for each in sites)]
        for each in ending:
            each.stop()
        with trio.move_on_after(_END_SECONDS):
            while any(each.process is not None for each in ending):
                await trio.sleep(0.1)

    async def settled(self, seconds: float = SETTLED_SECONDS) -> None:
        """Returns when each sink holds what its source holds, and the source knows.

        Raises:
            TooSlowError: it took longer; with what each host lacks.
        """
        with trio.move_on_after(seconds):
            while not all(self.is_settled(each) for each in self.hosts.values()):
                await trio.sleep(0.05)
            return
        lacking = filter(None, (each.missing(sink) for each, sink in self._copies()))
        raise trio.TooSlowError(f"expected equal copies within {seconds:g} s: {'; '.join(lacking)}")

    def _copies(self) -> Iterator[tuple[Stream, Copy]]:
        for stream in self.streams.values():
            yield from ((stream, sink) for sink in stream.sinks)

    def is_settled(self, host: LabHost) -> bool:
        """True when this one does, with all that it takes in."""
        return all(each.is_settled(sink) for each, sink in self._copies() if sink.host is host)

    def content(self, host: int, master: int = SOURCE) -> dict[int, bytes]:
        """A digest of each excerpt of a queue that a host holds, by index."""
        return content(self.hosts[host].copies[master].path)


@asynccontextmanager
async def running_cluster(
    folder: Path,
    hosts: int,
    *,
    seed: int = 0,
    roll_cycle: str = "FAST_DAILY",
    rate: float = RATE,
    story: Story | None = None,
    programs: Mapping[int, Program] | None = None,
    both_ways: bool = False,
    changing: bool = False,
    bursts: bool = False,
    with_frames: Collection[int] = (),
    routes: Collection[Route] = (),
    acks: int = 1,
    groups: int = 1,
    experiment: Experiment = NOTHING,
    plan: RunPlan | None = None,
) -> AsyncIterator[Cluster]:
    """Runs hosts for the length of a block; the arguments are those of `Cluster`.

    The sockets of this trio run are the laboratory's from now on.
    """
    try:
        async with trio.open_nursery() as nursery, looking(LOOK_SECONDS):
            cluster = Cluster(
                folder,
                hosts,
                nursery,
                seed=seed,
                roll_cycle=roll_cycle,
                rate=rate,
                story=story,
                programs=programs,
                both_ways=both_ways,
                changing=changing,
                bursts=bursts,
                with_frames=with_frames,
                routes=routes,
                acks=acks,
                groups=groups,
                experiment=experiment,
                plan=plan,
            )
            trio.socket.set_custom_socket_factory(cluster.network)
            try:
                cluster.start()
                yield cluster
                await cluster.stop()
            finally:
                cluster.network.close()
            nursery.cancel_scope.cancel()
    finally:
        give_back_time()  # behind the last task: each may have set it


def _programs(
    experiment: Experiment, own: Mapping[int, Program], host: int, process: Process
) -> list[Program]:
    program = own.get(host)
    return [*([] if program is None else [program]), *experiment.programs_of(host, process)]


def _queues(count: int, *, has_number: bool) -> dict[int, str]:
    """The names of the queues, by their numbers; the first has it in its name only if told to."""
    return {
        each: f"{QUEUE}{each}" if has_number or each > SOURCE else QUEUE
        for each in range(SOURCE, count + SOURCE)
    }


def _shown(index: int) -> str:
    return format_index(index) if index >= 0 else "nothing"


def _application(master: int, both_ways: bool) -> str:
    return f"application {master}" if both_ways else "application"


def _rng(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")
