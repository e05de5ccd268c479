"""The parts of a user that take part in a run: programs, services, workloads, checks and faults.

    run(plan, programs=[make_program], workload=work, checks=[check])

A *program* is made for each start of each host, by `(host_id, surroundings) -> program`: it is what
goes into `Host(programs=[...])`. One with a coroutine `run(host)` has a task beside its host. A
*workload* is `async (site) -> None`, in a process of its own on the machine of each host; a
*service* the same, on a machine of its own. A *check* is `(scene) -> findings`: the texts of what
is not as it must be, when all is quiet and the laboratory itself has found nothing. A *fault* is
`async (scene, fault) -> None`, by its name: it is drawn, as all others are.
"""

import importlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import trio

from cqrepl.net.program import Program
from cqrepl.surroundings import Surroundings
from cqrepl.testing import storereader
from cqrepl.testing.history import History
from cqrepl.testing.labhosts import LabHost
from cqrepl.testing.labmachine import Process
from cqrepl.testing.ledqueue import LedQueue
from cqrepl.testing.linearizability import Model, check_linearizable
from cqrepl.testing.network import Network
from cqrepl.testing.plan import Fault, RunPlan
from cqrepl.testing.site import Site, Work
from cqrepl.testing.story import Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that there is in a run, for a user's checks and faults.

    Args:
        quiet: set when no more faults come.
        hosts: by their ids.
        workloads: one beside each host, by the id of that.
        services: by the numbers of their machines, in the order in which they were given.
        differing: by queue, the ids of the hosts whose copies say why they differ. The judges of
            the laboratory fill that in before they call the checks of a user.
        led: the queues whose leaders change, by name.
    """

    plan: RunPlan | None
    story: Story
    history: History
    quiet: trio.Event
    network: Network
    hosts: Mapping[int, LabHost]
    workloads: Mapping[int, Site]
    services: Mapping[int, Site]
    differing: Mapping[str, Collection[int]]
    led: Mapping[str, LedQueue]

    def lost_from(self, queue: str) -> int | None:
        """The lowest index from which on operators have accepted that what was safe may be lost; a
        check has to leave that out. None where they have not."""
        led = self.led.get(queue)
        return None if led is None else led.lost_from

    def equal_hosts(self, queue: str) -> list[int]:
        """The ids of the hosts whose copies of a queue are equal once all is quiet: all but those
        that say why they differ. A check asks them alone for what was acknowledged."""
        return [host for host in self.hosts if host not in self.differing[queue]]

    def content(self, host: int, queue: str) -> dict[int, bytes]:
        """The payloads of a queue at a host, by index; the laboratory's own reader reads them."""
        return dict(storereader.excerpts(self.hosts[host].machine.path / queue))


MakeProgram = Callable[[int, Surroundings], Program]
Check = Callable[[Scene], Iterable[str]]
OwnFault = Callable[[Scene, Fault], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The parts of a user in one run.

    Args:
        writes: programs or workloads append to the queues of the run, too. Whether that is what
            was written is for the checks then; copies are equal and all else holds as ever, once
            nothing was appended for a while.
        applies: programs tell what they have applied of a queue whose leader changes; else the
            laboratory tells it of all that is there.
        settings: what stands besides in the `cqrepl` node of the file of the cluster, for hosts
            that have one: those that are source and sink, and those whose roles change.
    """

    programs: Sequence[MakeProgram] = ()
    workload: Work | None = None
    services: Sequence[Work] = ()
    checks: Sequence[Check] = ()
    faults: Mapping[str, OwnFault] = field(default_factory=dict)
    writes: bool = False
    applies: bool = False
    settings: str = ""

    def programs_of(self, host: int, process: Process) -> list[Program]:
        """The programs of one start of a host."""
        return [make(host, process) for make in self.programs]


NOTHING: Final = Experiment()


def linearizable(model: Model) -> Check:
    """A check that the history of a run is linearizable, as this model says."""

    def linearizable_history(scene: Scene) -> list[str]:
        found = check_linearizable(scene.history.operations, model)
        return [] if found is None else [str(found)]

    return linearizable_history


def read_experiment(module: str) -> Experiment:
    """The experiment that a module has: what is called there as the fields are.

    Raises:
        ImportError: there is no such module, or it imports one that is not there.
        ValueError: it has nothing of an experiment.
    """
    # the name comes from the command line, whose user may run any code here as it is
    found = importlib.import_module(module)  # noqa: TID251
    names = [each.name for each in fields(Experiment)]
    parts: dict[str, Any] = {name: getattr(found, name) for name in names if hasattr(found, name)}
    if not parts:
        raise ValueError(f"{module}: expected one of {', '.join(names)}, got none of them")
    return Experiment(**parts)
