"""A client of a task board: submits, asks and works, as a guest of the host that leads.

Theory of operation. A client knows some hosts of a cluster, dials one after the other until one
serves the board, and goes where a host that does not serve says who does. What was not answered
when a connection ends is asked once more at the next host: a task is submitted with a key, so twice
the same is one task; and what a worker tells of a task names the attempt.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from cqrepl.broker.fields import NO_BOARD, TaskWords, Value
from cqrepl.broker.taskkind import CSP_PREFIX, DECODER, TASKS_CAPABILITY, TaskHalf, task_kind
from cqrepl.host import serve_host
from cqrepl.net.address import Address
from cqrepl.net.errors import NetError, Refused
from cqrepl.net.settings import NetSettings
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.protocol import HeartbeatSettings, LinkView, ProtocolSettings
from cqrepl.replicator.settings import HostSettings
from cqrepl.service.servicehalf import HalfAsked
from cqrepl.surroundings import surroundings

PAUSE_SECONDS: Final = 0.25
GREETING_SECONDS: Final = 2.0  # from the first attempt to a host that says who it is
# a host that stands still is left for the next one as soon as that can have been elected
_BEATS: Final = HeartbeatSettings(interval_ms=500, timeout_ms=2000)


class TasksRefused(Refused):
    """A board has refused a request."""


@dataclass(slots=True, eq=False)
class _Request:
    said: TaskWords
    rows: list[TaskWords] = field(default_factory=list)
    answer: TaskWords | None = None
    done: trio.Event = field(default_factory=trio.Event)


class _Visit:
    """The program of one connection to one host."""

    def __init__(self, client: "TaskClient") -> None:
        self.kinds = (task_kind(is_asked=False),)
        self.half: TaskHalf | None = None
        self.is_over = trio.Event()
        self.next: Address | None = None
        self.why = ""
        self.has_none = False  # the host says that it has no such board
        self._client = client

    async def connected(self, link: LinkView) -> None:
        if TASKS_CAPABILITY not in link.capabilities:
            self.why, self.has_none = "it has no task boards", True
            self.is_over.set()
            return
        csp = CSP_PREFIX + self._client.board
        self.half = half = TaskHalf(csp, link, DECODER)
        half.cid = link.register(csp, self.kinds[0], None, half)
        self._client.came(half)

    async def told(self, link: LinkView, event: object) -> None:
        if not isinstance(event, HalfAsked):
            return
        said = event.said
        if said.name != "refused":
            self._client.heard(said)
            return
        self.why = said.text("why")
        self.has_none = said.text("outcome") == NO_BOARD
        if said.text("where"):
            self.next = Address.parse(said.text("where"))
        self.is_over.set()


class TaskClient:
    """A client of one board; made by `running`.

    Args:
        hosts: the addresses of some hosts of the cluster.
        name: says who is a guest there.
    """

    def __init__(
        self,
        hosts: Sequence[Address],
        board: str,
        name: str = "cqrepl tasks",
        tls: TlsSettings = NO_TLS,
    ) -> None:
        self.board = board
        self._hosts = list(hosts)
        self._name = name
        self._tls = tls
        self._asks = 0
        self._requests: dict[int, _Request] = {}
        self._half: TaskHalf | None = None
        self._join: TaskWords | None = None  # of a worker
        self._holds: dict[int, int] = {}  # the attempts of the tasks that it has
        self._work: trio.MemorySendChannel[TaskWords] | None = None
        self.why = ""  # nothing was reached, as it was tried last
        self.answered = trio.Event()  # a host has served a request
        self.absent = trio.Event()  # no host has such a board, of those that answer
        self._have_none: dict[Address, bool] = {}  # of the hosts that were tried
        self._silent: set[Address] = set()  # those of them that have not answered last

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TaskClient"]:
        """For the length of a block it is connected, or tries to be."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay_connected)
            yield self
            nursery.cancel_scope.cancel()

    async def submit(self, type_: str, payload: bytes, key: str | None = None, **more: int) -> int:
        """The id of the task, which is as safe as the board's group wants it.

        Args:
            key: a task of the same key is the same task; None: a new one.
            more: `attempts` at most, `backoff` in ms, `deadline` in ms since 1970.

        Raises:
            TasksRefused: the board takes none of this kind.
        """
        key = surroundings().random_bytes(16).hex() if key is None else key
        values: dict[str, Value] = {"type": type_, "payload": payload, "key": key}
        return (await self.ask("submit", values | more))[0].number("task")

    async def ask(self, name: str, values: Mapping[str, Value]) -> list[TaskWords]:
        """The answer, then the rows that belong to it.

        Raises:
            TasksRefused: with the board's words.
        """
        while True:
            self._asks += 1
            request = _Request(TaskWords(name, {"ask": self._asks} | dict(values)))
            self._requests[self._asks] = request
            if self._half is not None:
                self._half.say(request.said)
            try:
                await request.done.wait()
            finally:
                self._requests.pop(request.said.number("ask"), None)
            assert request.answer is not None
            outcome = request.answer.text("outcome")
            if outcome == "ok":
                return [request.answer, *request.rows]
            if outcome != "unknown":
                raise TasksRefused(f"board {self.board!r}: {request.answer.text('why')}")
            await trio.sleep(PAUSE_SECONDS)

    async def work(
        self, worker: str, types: Sequence[str], slots: int = 1
    ) -> "trio.MemoryReceiveChannel[TaskWords]":
        """The tasks that are assigned to this client, which is a worker from now on."""
        self._work, received = trio.open_memory_channel[TaskWords](2 * slots)
        self._join = TaskWords("join", {"worker": worker, "types": " ".join(types), "slots": slots})
        await self.ask("join", self._join.values)
        return received

    async def finish(self, task: TaskWords, result: bytes) -> None:
        """It is done.

        Raises:
            TasksRefused: this worker has lost it.
        """
        await self._tell("finish", task, {"result": result})

    async def fail(self, task: TaskWords, why: str) -> None:
        """It could not be done.

        Raises:
            TasksRefused: this worker has lost it.
        """
        await self._tell("fail", task, {"why": why[:1000]})

    async def _tell(self, name: str, task: TaskWords, more: Mapping[str, Value]) -> None:
        number, attempt = task.number("task"), task.number("attempt")
        try:
            await self.ask(name, {"task": number, "attempt": attempt} | dict(more))
        finally:
            if self._holds.get(number) == attempt:
                del self._holds[number]

    # ---- for a visit ------------------------------------------------------------------------

    def came(self, half: TaskHalf) -> None:
        """A host is there, which may serve: what waits for an answer is asked."""
        self._half = half
        if self._join is not None and not any(
            each.said.name == "join" for each in self._requests.values()
        ):
            holds = " ".join(f"{task}:{attempt}" for task, attempt in self._holds.items())
            half.say(TaskWords("join", dict(self._join.values) | {"holds": holds}))
        for each in self._requests.values():
            each.rows.clear()
            half.say(each.said)

    def heard(self, said: TaskWords) -> None:
        """A host that serves says something."""
        if said.name == "work":
            self._take(said)
            return
        request = self._requests.get(said.number("ask"))
        if request is None:
            return
        if said.name == "answer":
            self.answered.set()
            request.answer = said
            request.done.set()
        else:
            request.rows.append(said)

    def _take(self, task: TaskWords) -> None:
        assert self._work is not None
        number, attempt = task.number("task"), task.number("attempt")
        try:
            self._work.send_nowait(task)
            self._holds[number] = attempt
        except trio.WouldBlock:  # it has some still that it has lost by now
            why = "its worker has no room yet"
            if self._half is not None:
                self._half.say(TaskWords("fail", {"task": number, "attempt": attempt, "why": why}))

    async def _stay_connected(self) -> None:
        nth, after = 0, None
        while True:
            address = after or self._hosts[nth % len(self._hosts)]
            nth += after is None
            after = await self._visit(address)
            self._half = None
            if after is None or after == address:
                await trio.sleep(PAUSE_SECONDS)

    async def _visit(self, address: Address) -> Address | None:
        """Stays with one host; the address of another one that leads, if it is told."""
        visit = _Visit(self)
        settings = HostSettings(
            net=NetSettings(connect=address, tls=self._tls),
            protocol=ProtocolSettings(guest=self._name, heartbeat=_BEATS),
        )
        try:
            with trio.fail_after(GREETING_SECONDS):  # a dialler would try this host again and again
                await (await trio.open_tcp_stream(address.host, address.port)).aclose()
            async with serve_host(settings, sources={}, sinks={}, program=visit):
                with trio.move_on_after(GREETING_SECONDS):
                    while visit.half is None and not visit.is_over.is_set():
                        await trio.sleep(0.005)
                if visit.half is not None:
                    await self._stay(visit, visit.half)
                    visit.why = visit.why or visit.half.why
                else:
                    visit.why = visit.why or "it was not reached"
        except* (NetError, OSError, trio.TooSlowError) as errors:
            visit.why = str(errors.exceptions[0]) or "it was not reached"
        self.why = f"{address}: {visit.why}" if visit.why else self.why
        self._note(address, visit)
        return visit.next

    def _note(self, address: Address, visit: _Visit) -> None:
        """Notes what has come of a visit. The board is absent where each host has been tried, and
        those that answer say that they have none."""
        if visit.half is None and not visit.has_none:
            self._have_none.setdefault(address, False)
            self._silent.add(address)
            return
        self._silent.discard(address)
        self._have_none[address] = visit.has_none
        answering = self._have_none.keys() - self._silent
        if self._have_none.keys() >= set(self._hosts) and all(
            self._have_none[each] for each in answering
        ):
            self.absent.set()

    async def _stay(self, visit: _Visit, half: TaskHalf) -> None:
        async with trio.open_nursery() as nursery:

            async def until(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until, visit.is_over)
            nursery.start_soon(until, half.ended)
            while True:
                await trio.sleep(1.0)
                if self._join is not None:
                    half.say(TaskWords("beat"))
