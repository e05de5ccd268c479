"""The parts of a running host that the rooms beside and above the replicator work with.

`cqrepl.host.Host` has them all. Code that is handed a host names this protocol, so nothing below
imports the class that puts a host together.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from cqrepl.net.endpoint import Endpoint
from cqrepl.replicator.direction import Direction
from cqrepl.replicator.fitness import Fitness
from cqrepl.replicator.ownwriters import OwnWriter
from cqrepl.replicator.settings import HostSettings
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source


class HostParts(Protocol):
    """A running host, without the class that made it."""

    @property
    def settings(self) -> HostSettings: ...
    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def direction(self) -> Direction: ...
    @property
    def source(self) -> Source: ...
    @property
    def sink(self) -> Sink: ...
    @property
    def has_ended(self) -> bool:
        """True once it has ended, or is about to."""

    @property
    def fitness(self) -> Fitness:
        """The services that say whether this host is fit to lead a queue."""

    def path_of(self, name: str) -> Path:
        """The directory of a queue.

        Raises:
            ValueError: the host has no queue of this name.
        """

    def has_queue(self, name: str) -> bool:
        """True for a queue of this host, whichever way it goes, also on its way to another."""

    def writer(self, name: str, check: Callable[[], object]) -> OwnWriter:
        """The writer that appends to a queue that is streamed, for the program.

        Args:
            check: as of `OwnWriters.of`.
        """
