"""Candidates in ZooKeeper: it says which of them is the first, and so asks for promises.

Theory of operation. Each host that could lead a queue has an ephemeral sequential node; the oldest
one is the first. ZooKeeper decides nothing else: an epoch is led by whom copies have promised it
to. kazoo runs in threads of its own, and its watches only wake the event loop. Whether the session
is over this host decides by its own clock, from its last read that succeeded: kazoo learns that a
session was lost only once it is connected again. Until then a leader goes on, since copies fence.

    PATH/QUEUE/candidates/HOST-0000000007    ephemeral; data: the host's id
    PATH/QUEUE/epochs                        a record for people: [[number, leader, start], ...]
"""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import trio
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from cqrepl.net.threads import in_thread
from cqrepl.queue.format.epochs import History
from cqrepl.replicator.electionsettings import ZooKeeperSettings
from cqrepl.surroundings import surroundings

LOOKS_PER_SESSION: Final = 8
TRIES_PER_SESSION: Final = 20  # to connect again, at least
LOOK_SECONDS_MAX: Final = 1.0
_FAILED: Final = (KazooException, KazooTimeoutError, OSError)
_logger: Final = logging.getLogger(__name__)


class ZooKeeperCandidates:
    """The candidacies of one host.

    Args:
        wake: is called in the event loop when something has changed.
    """

    def __init__(self, settings: ZooKeeperSettings, host_id: int, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._host_id = host_id
        self._wake = wake
        self._token = trio.lowlevel.current_trio_token()
        self._client: KazooClient
        self._wanted: frozenset[str] = frozenset()  # queues that this host could lead
        self._own: dict[str, str] = {}  # names of its nodes, by queue
        self._first: frozenset[str] = frozenset()  # queues that it is the first candidate of
        self._read_at: float | None = None  # the last read that succeeded began then
        self._news = trio.Event()
        self._said = ""

    def stand(self, names: Iterable[str]) -> None:
        """This host could lead these queues, and no others."""
        wanted = frozenset(names)
        if wanted != self._wanted:
            self._wanted = wanted
            self._news.set()

    def is_first(self, name: str) -> bool:
        """True while ZooKeeper has this host as the first candidate of a queue, and its session is
        not over."""
        return name in self._first and not self.is_over

    @property
    def is_over(self) -> bool:
        """True once nothing was read for the time of a session, by this host's own clock."""
        if self._read_at is None:
            return True
        return surroundings().boottime() >= self._read_at + self._settings.session_seconds

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stands for the length of a block; its nodes go with its session."""
        settings, auth = self._settings, None
        if settings.user:
            auth = [("digest", f"{settings.user}:{_password(settings)}")]
        # as kazoo waits longer each time, a session would end though the servers are back
        retry = {"max_tries": -1, "max_delay": settings.session_seconds / TRIES_PER_SESSION}
        self._client = client = KazooClient(
            ",".join(settings.hosts),
            timeout=settings.session_seconds,
            auth_data=auth,
            connection_retry=retry,
        )
        client.add_listener(lambda state: self._post())
        await in_thread(client.start_async)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._work)
                yield
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(settings.session_seconds):
                await in_thread(partial(_end, client), abandon_on_cancel=True)

    def _post(self, *_event: object) -> None:
        """In a thread of kazoo's."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._came)

    def _came(self) -> None:
        self._news.set()

    async def _work(self) -> None:
        pause = min(self._settings.session_seconds / LOOKS_PER_SESSION, LOOK_SECONDS_MAX)
        while True:
            self._news = trio.Event()
            began = surroundings().boottime()
            try:
                look = partial(self._look, self._wanted)
                self._first = await in_thread(look, abandon_on_cancel=True)
            except _FAILED as error:
                self._tell(f"ZooKeeper at {','.join(self._settings.hosts)}: {error!r}")
            else:
                self._read_at = began
                self._tell("")
            self._wake()
            with trio.move_on_after(pause):
                await self._news.wait()

    def _tell(self, trouble: str) -> None:
        if trouble != self._said:
            _logger.warning("%s", trouble or "ZooKeeper answers again")
        self._said = trouble

    # ---- in a thread ------------------------------------------------------------------------

    def _look(self, wanted: frozenset[str]) -> frozenset[str]:
        """The queues of which this host is the first candidate; each of its nodes is there."""
        for name in self._own.keys() - wanted:
            with suppress(NoNodeError):
                self._asked(self._client.delete_async, f"{self._folder(name)}/{self._own[name]}")
            del self._own[name]
        first = set()
        for name in sorted(wanted):
            folder = self._folder(name)
            try:
                found = self._children(folder)
            except NoNodeError:
                self._asked(self._client.ensure_path_async, folder)
                found = self._children(folder)
            mine = self._own.get(name)
            if mine not in found:  # its session was another one
                path = self._asked(
                    partial(self._client.create_async, ephemeral=True, sequence=True),
                    f"{folder}/{self._host_id}-",
                    str(self._host_id).encode(),
                )
                mine = self._own[name] = str(path).rsplit("/", 1)[1]
                found = self._children(folder)
            if found and min(found, key=_number) == mine:
                first.add(name)
        if not wanted:
            self._asked(self._client.exists_async, "/")
        return frozenset(first)

    def _children(self, folder: str) -> list[str]:
        return list(self._asked(partial(self._client.get_children_async, watch=self._post), folder))

    def _asked(self, call: Callable[..., Any], *given: object) -> Any:
        return call(*given).get(timeout=self._settings.session_seconds / 2)

    def _folder(self, name: str) -> str:
        return f"{self._settings.path}/{quote(name, safe='')}/candidates"

    async def note(self, name: str, history: History) -> None:
        """Writes the epochs of a queue as the copies have them, for people; compared and set. What
        is there already, or cannot be written, changes nothing."""
        try:
            await in_thread(partial(self._note, name, history), abandon_on_cancel=True)
        except _FAILED as error:
            _logger.info("queue %r: its epochs are not noted in ZooKeeper: %r", name, error)

    def _note(self, name: str, history: History) -> None:
        path = f"{self._settings.path}/{quote(name, safe='')}/epochs"
        epochs = [[each.number, each.leader, each.start] for each in history]
        data = json.dumps(epochs).encode()
        while epochs:
            try:
                known, status = self._asked(self._client.get_async, path)
            except NoNodeError:
                with suppress(NodeExistsError):
                    self._asked(partial(self._client.create_async, makepath=True), path, data)
                    return
                continue
            before = json.loads(known or "[]")
            if before and before[-1][0] >= epochs[-1][0]:
                return  # a later leader has noted more
            with suppress(BadVersionError):
                set_it = partial(self._client.set_async, version=status.version)
                self._asked(set_it, path, data)
                return


def _number(node: str) -> int:
    return int(node.rsplit("-", 1)[1])


def _password(settings: ZooKeeperSettings) -> str:
    assert settings.password_file is not None
    return Path(settings.password_file).read_text().strip()


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()
