"""A host with storages in a thread of its own, for programs that have no event loop.

    with StorageHost(settings, [StorageSettings(group="p-fix")]) as host:
        orders = host.factory().get_or_create_queue("orders", StringSerializer(), timeout=0.01)
        orders.append("buy 100")                     # where this host leads

Settings are those that `cqrepl.read_settings(path, host_id)` gives: so hosts that run so and hosts
of `cqrepl run` are hosts of one cluster.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings, Keeping
from cqrepl.cluster.snapshots import GroupState, Snapshots
from cqrepl.host import Host
from cqrepl.net.program import Program
from cqrepl.persist.errors import PersistError
from cqrepl.persist.factory import ReplicatedPersistenceFactory
from cqrepl.persist.persistdesk import PersistDesk, SyncJoining
from cqrepl.persist.storage.storageservice import StorageService, StorageSettings
from cqrepl.protocol.programfault import Contained
from cqrepl.replicator.hostevents import HostEvents
from cqrepl.replicator.rolelog import RoleChange
from cqrepl.replicator.settings import HostSettings

LOOK_SECONDS: Final = 0.25
_logger: Final = logging.getLogger(__name__)


class StorageHost:
    """It runs for the length of a `with` block.

    Args:
        groups: at least one; each a queue that `settings` has.
        addresses: of hosts, by their ids.

    Attributes:
        changed: is called for each change of its role on a group, in order, in a thread.
        met, parted: are called when another host is connected, and is not any more, in a thread.

    Raises:
        ValueError: there is no group, two are the same, or one is no queue of the host.
        PersistError: when it is entered, and the host could not begin; its cause says why.
    """

    def __init__(
        self,
        settings: HostSettings,
        groups: Iterable[StorageSettings],
        addresses: Mapping[int, str] | None = None,
        checkpoints: CheckpointSettings | None = None,
    ) -> None:
        self.addresses = dict(addresses or {})
        self.services = {
            each.group: StorageService(each, lambda: self.addresses) for each in groups
        }
        self._paths = {k: Path(v) for k, v in {**settings.sources, **settings.sinks}.items()}
        unknown = sorted(self.services.keys() - self._paths.keys())
        if unknown or not self.services:
            raise ValueError(f"expected groups that are queues of the host, got {unknown}")
        self.changed: list[Callable[[RoleChange], None]] = []
        self.met: list[Callable[[int], None]] = []
        self.parted: list[Callable[[int], None]] = []
        self._settings = settings
        self._checkpoints = checkpoints or CheckpointSettings()
        own = settings.protocol.host_id
        self._others = frozenset(settings.protocol.remote_ids) - {own}
        self._desk = PersistDesk(self.services.values())
        self._snapshots = Snapshots(self._others, self._leader)
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        self._fault: Exception | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._end: trio.Event
        self._host: Host | None = None
        self.role: object | None = None  # the controller of the one that is up
        self._factories: dict[str, ReplicatedPersistenceFactory] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns once the host has begun.

        Raises:
            PersistError: it could not, or it runs; its cause says why.
        """
        if self._thread is not None and self._thread.is_alive():
            raise PersistError("expected a host that has ended, got one that runs")
        self._begun.clear()
        self._fault = None
        self._thread = threading.Thread(target=self._run, name="storages", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._fault is not None:
            raise PersistError(f"the host has not begun: {self._fault}") from self._fault

    def stop(self) -> None:
        """Returns once the host has ended."""
        token, thread = self._token, self._thread
        if thread is None:
            return
        if token is not None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._end.set)
        thread.join()
        self._thread = None

    def factory(self, group: str | None = None) -> ReplicatedPersistenceFactory:
        """The factory of a group; of the only one, where none is named.

        Raises:
            ValueError: it has no such group, or several and none was named.
        """
        if group is None:
            if len(self.services) > 1:
                raise ValueError(f"expected one of the groups {', '.join(self.services)}, got none")
            group = next(iter(self.services))
        service = self.services.get(group)
        if service is None:
            raise ValueError(f"expected one of the groups {', '.join(self.services)}, got {group}")
        if group not in self._factories:
            timeout_s = service.settings.timeout_seconds
            self._factories[group] = ReplicatedPersistenceFactory(service, timeout_s)
        return self._factories[group]

    def _leader(self, group: str) -> int | None:
        return None if self._host is None else self._host.position(group).leader

    def _run(self) -> None:
        with Contained(self._note):
            trio.run(self._serve)
        self._token = None
        self._begun.set()

    def _note(self, fault: Exception) -> None:
        self._fault = fault
        _logger.error(
            "the host with the storages %s has ended: %s", ", ".join(self.services), fault
        )

    async def _serve(self) -> None:
        self._end = trio.Event()
        events = HostEvents(on_role_change=self._tell_change)
        programs: list[Program] = [self._desk, self._snapshots]
        async with Host(self._settings, programs=programs, events=events) as host:
            self._host = host
            async with self._desk.running(host, self._saver), trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_peers, host)
                self._token = trio.lowlevel.current_trio_token()
                self._begun.set()
                await self._end.wait()
                nursery.cancel_scope.cancel()

    def _saver(self, service: StorageService) -> Checkpointer:
        group, path = service.group, self._paths[service.group]
        joining = SyncJoining(self._desk, self._snapshots)
        keeping = partial(self._keeping, service)
        saver = Checkpointer(group, path, self._checkpoints, joining, keeping)
        self._snapshots.groups[group] = GroupState(
            path=path, folder=saver.folder, save=lambda: service.led.feed.save()
        )
        return saver

    def _keeping(self, service: StorageService) -> Keeping:
        """The host that leads deletes what all others have; another one nothing, until it leads."""
        return Keeping(members=self._others if service.leads() else None)

    def _tell_change(self, change: RoleChange) -> None:
        if change.queue in self.services:
            for each in list(self.changed):
                each(change)

    async def _watch_peers(self, host: Host) -> None:
        known: set[int] = set()
        while True:
            now = set(host.endpoint.connections)
            for calls, hosts in ((self.met, now - known), (self.parted, known - now)):
                for each in sorted(hosts):
                    for call in list(calls):
                        with Contained(partial(_logger.error, "a call of a program failed: %r")):
                            await trio.to_thread.run_sync(call, each)
            known = now
            await trio.sleep(LOOK_SECONDS)
