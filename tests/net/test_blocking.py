"""A host in a program of plain threads: appends, waits, errors, forks, and the end."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

import cqrepl
from cqrepl import AckLevel, AckPolicy, HostSettings, OnTimeout, Queue
from cqrepl.blocking import BlockingHost, BlockingQueue, Host
from cqrepl.queue.files.epochfile import store_epochs
from cqrepl.queue.format.epochs import Epoch, Epochs
from cqrepl.queue.format.index import Index
from cqrepl.replicator.leadership import Leading
from tests.support import forks
from tests.support.nothreads import no_threads
from tests.support.ports import reserved_port
from tests.support.replicas import LOOPBACK, SECONDS, at
from tests.support.samples import NOON_MS, held


def source_of(path: Path, **more: Any) -> HostSettings:
    """Of a host that listens and streams an empty queue, "q"."""
    Queue.open_for_append(path, create="FAST_DAILY").close()
    options: dict[str, Any] = {"listen": LOOPBACK, "sources": {"q": path}} | more
    return HostSettings.of(**options)


@contextmanager
def pair(tmp_path: Path) -> Iterator[tuple[BlockingHost, BlockingHost]]:
    """A host that streams "q", and one that takes it in."""
    with Host(source_of(tmp_path / "q")) as one:
        with Host(HostSettings.of(connect=at(one.port), sinks={"q": tmp_path / "copy"})) as two:
            yield one, two


def test_one_that_gets_no_thread_may_be_tried_again(tmp_path: Path) -> None:
    host = Host(source_of(tmp_path / "q"))
    with no_threads(), pytest.raises(OSError, match="can't start new thread"):
        host.__enter__()
    with pytest.raises(RuntimeError, match="does not run yet"):
        host.check()
    with host:
        assert host.port


def led_in_epoch_3(path: Path) -> HostSettings:
    """Of host 1, which leads "q" in an epoch."""
    settings = source_of(path, host_id=1)
    history = (Epoch(3, 1, Index(0)),)
    store_epochs(path, Epochs(promised=3, promised_to=1, history=history))
    return settings


def test_the_epoch_in_which_a_host_leads(tmp_path: Path) -> None:
    with Host(source_of(tmp_path / "q")) as host:
        assert host.queue("q").leading.epoch == 0
    with Host(led_in_epoch_3(tmp_path / "r")) as host:
        assert host.queue("q").leading.epoch == 3


def test_a_thread_waits_as_a_policy_says(tmp_path: Path) -> None:
    synced = AckPolicy(level=AckLevel.SYNCED, timeout_seconds=SECONDS)
    nobody = AckPolicy(hosts=frozenset({7}), timeout_seconds=0.01, on_timeout=OnTimeout.FAIL)
    with pair(tmp_path) as (one, _):
        queue = one.queue("q")
        index = queue.append(b"a")
        assert queue.wait_acked(index, policy=synced) is cqrepl.AckOutcome.ACKED
        assert queue.leading.marks()[2][AckLevel.SYNCED] == index
        with pytest.raises(cqrepl.AckUnknown):
            queue.wait_acked(index, policy=nobody)
        warns = replace(nobody, timeout_seconds=SECONDS, on_timeout=OnTimeout.WARN)
        assert queue.wait_acked(index, timeout=0.01, policy=warns) is cqrepl.AckOutcome.UNKNOWN
        for n, hosts in ((2, None), (1, [2])):
            with pytest.raises(ValueError, match="a policy, or a number of hosts"):
                queue.wait_acked(index, n, hosts=hosts, policy=synced)


def test_a_reader_in_a_thread_says_what_it_has_taken(tmp_path: Path) -> None:
    policy = AckPolicy(level=AckLevel.APPLIED, timeout_seconds=SECONDS, on_timeout=OnTimeout.FAIL)
    with pair(tmp_path) as (one, two):
        orders, copy = one.queue(), two.queue()

        def take() -> None:
            with Queue.open(tmp_path / "copy") as queue:
                tailer = queue.tailer()
                for _ in range(50):
                    assert tailer.wait(SECONDS)
                    excerpt = tailer.next_excerpt()
                    assert excerpt is not None
                    copy.applied(excerpt.index)

        orders.append(b"0", policy=AckPolicy(timeout_seconds=SECONDS))  # the copy is there
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(take)
            for number in range(1, 50):
                last = orders.append(b"%d" % number, policy=policy)
            taken.result(SECONDS)
        assert orders.leading.marks()[2][AckLevel.APPLIED] == last
        copy.applied(last - 1)  # what is lower changes nothing
        assert orders.leading.marks()[2][AckLevel.APPLIED] == last
        with pytest.raises(cqrepl.Refused, match="streamed from here"):
            orders.applied(last)
    with pytest.raises(cqrepl.HostEnded):
        copy.applied(last)


def test_an_append_that_waits_is_told_what_has_ended_its_host(tmp_path: Path) -> None:
    policy = AckPolicy(hosts=frozenset({7}), timeout_seconds=SECONDS)
    raised: list[Exception] = []
    host = Host(source_of(tmp_path / "q"))

    def work(queue: BlockingQueue) -> None:
        try:
            queue.append(b"stays", policy=policy)
        except (cqrepl.WaitEnded, cqrepl.HostEnded) as error:
            raised.append(error)

    with host:
        queue = host.queue("q")
        thread = threading.Thread(target=work, args=(queue,))
        thread.start()
        while not held(tmp_path / "q"):
            thread.join(0.01)
    thread.join()
    assert [type(each) for each in raised] == [cqrepl.WaitEnded]
    with pytest.raises(cqrepl.HostEnded):
        queue.append(b"no", policy=policy)
    assert held(tmp_path / "q") == [b"stays"]


def test_a_wait_that_was_ended_is_told_as_such_once_all_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The appended excerpt stays; an error that the host has ended would say that there is none."""
    policy = AckPolicy(hosts=frozenset({7}), timeout_seconds=SECONDS)
    host, appended = Host(source_of(tmp_path / "q")), threading.Event()
    settle = Leading.settle

    def late(*arguments: Any) -> None:
        try:
            appended.set()
            settle(*arguments)
        finally:
            host._thread.join()

    monkeypatch.setattr(Leading, "settle", late)
    with ThreadPoolExecutor(1) as pool:
        with host:
            waiting = pool.submit(host.queue("q").append, b"stays", policy=policy)
            assert appended.wait(SECONDS)
        with pytest.raises(cqrepl.WaitEnded):
            waiting.result(SECONDS)
    assert held(tmp_path / "q") == [b"stays"]


def test_threads_append_and_wait(tmp_path: Path) -> None:
    with pair(tmp_path) as (one, two):
        queue = one.queue("q")

        def work(number: int) -> int:
            index = queue.append(b"%d" % number, now_ms=NOON_MS)
            queue.wait_acked(index, timeout=SECONDS, hosts=[2])
            return index

        with ThreadPoolExecutor(4) as pool:
            indexes = list(pool.map(work, range(40)))
        assert len(set(indexes)) == 40
        assert queue.board.marks == {2: max(indexes)}
        assert (one.stops, two.stops) == ([], [])
        assert (queue.is_streamed, two.queue().is_streamed) == (True, False)
        assert two.queue().path == tmp_path / "copy"
        assert two.port is None
        with pytest.raises(cqrepl.Refused, match="'q' is taken in here"):
            two.queue().append(b"no")
    assert sorted(held(tmp_path / "copy")) == sorted(b"%d" % number for number in range(40))


def test_waits_that_come_to_nothing(tmp_path: Path) -> None:
    with Host(source_of(tmp_path / "q")) as host:
        queue = host.queue()
        index = queue.append(b"a")
        with pytest.raises(TimeoutError, match="1 acknowledgements of 0x"):
            queue.wait_acked(index, timeout=0.01)
        with pytest.raises(TimeoutError, match=r"not within 0.01 s"):
            host.wait_stopped(timeout=0.01)
        with ThreadPoolExecutor(2) as pool:
            acked = pool.submit(queue.wait_acked, index)
            stopped = pool.submit(host.wait_stopped)
            host.__exit__(None, None, None)
            assert isinstance(acked.exception(SECONDS), cqrepl.WaitEnded | cqrepl.HostEnded)
            assert isinstance(stopped.exception(SECONDS), cqrepl.HostEnded)


def test_after_its_end_it_says_so(tmp_path: Path) -> None:
    host = Host(source_of(tmp_path / "q"))
    with pytest.raises(RuntimeError, match=r"^this host does not run yet: `with` begins it$"):
        host.queue()
    with host:
        queue = host.queue()
        with pytest.raises(RuntimeError, match="a host runs once"):
            host.__enter__()
    for use in (host.queue, host.wait_stopped, lambda: host.port, lambda: queue.board):
        with pytest.raises(cqrepl.HostEnded, match=r"^this host has ended$"):
            use()
    with pytest.raises(cqrepl.HostEnded, match=r"^this host has ended$"):
        queue.append(b"a")
    with pytest.raises(cqrepl.HostEnded, match=r"^this host has ended$"):
        queue.wait_acked(1)


def test_what_it_cannot_begin_with_is_raised(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    host = Host(HostSettings.of(listen=LOOPBACK, sources={"q": tmp_path / "q"}))
    with pytest.raises(cqrepl.NotAQueue):
        host.__enter__()
    with pytest.raises(ValueError, match="at least one queue or a program expected"):
        Host(HostSettings.of(listen=LOOPBACK)).__enter__()


class Halt(BaseException):
    """No Exception: no host contains it."""


class Failing:
    """A program that ends its host when it is told of a peer."""

    kinds = ()

    async def connected(self, link: object) -> None:
        raise Halt("of the program")

    async def told(self, link: object, event: object) -> None:
        pass


def failing(tmp_path: Path, use: Callable[[BlockingHost], object]) -> None:
    """Uses a host whose program fails when a peer is there."""
    with Host(source_of(tmp_path / "q"), program=Failing()) as host:
        to_here = HostSettings.of(connect=at(host.port), sinks={"q": tmp_path / "copy"})
        with Host(to_here):
            use(host)


def test_errors_in_the_thread_come_out(tmp_path: Path) -> None:
    """They come out where the host is used next, and at the end of its block."""

    def use(host: BlockingHost) -> None:
        queue = host.queue()
        with pytest.raises(cqrepl.HostEnded, match=r"ended: of the program$") as ended:
            queue.wait_acked(1 << 60, timeout=SECONDS)
        assert isinstance(ended.value.__cause__, Halt)
        with pytest.raises(cqrepl.HostEnded, match=r"ended: of the program$"):
            queue.append(b"b")

    with pytest.raises(Halt, match="of the program"):
        failing(tmp_path, use)


def test_an_error_of_the_program_goes_on_and_names_the_other(tmp_path: Path) -> None:
    def use(host: BlockingHost) -> None:
        with pytest.raises(cqrepl.HostEnded):
            host.wait_stopped(SECONDS)
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        failing(tmp_path, use)
    assert caught.value.__notes__ == ["its host had ended: Halt: of the program"]


def test_one_that_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqrepl.net.dialer.GIVE_UP_SECONDS", 0.1)
    settings = HostSettings.of(
        connect=at(reserved_port()), sinks={"q": tmp_path / "q"}, gives_up=True
    )
    with pytest.raises(cqrepl.Unreachable):
        with Host(settings) as host:
            host.wait_stopped(SECONDS)


def test_an_event_loop_is_told_what_there_is(tmp_path: Path) -> None:
    settings = source_of(tmp_path / "q")

    async def enter() -> None:
        Host(settings).__enter__()

    told = "^cqrepl.blocking would hold up the event loop: here it is"
    with pytest.raises(RuntimeError, match=f"{told} cqrepl.Host$"):
        trio.run(enter)
    with pytest.raises(RuntimeError, match=rf"{told} cqrepl.aio.Host$"):
        asyncio.run(enter())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told(tmp_path: Path) -> None:
    with Host(source_of(tmp_path / "q")) as host:
        queue = host.queue()

        def child() -> None:
            uses = (host.queue, lambda: queue.append(b"a"), lambda: queue.wait_acked(1))
            for use in uses:
                with pytest.raises(RuntimeError, match="runs in the process that was forked"):
                    use()
            host.__exit__(None, None, None)  # and waits for no thread that is not there

        assert forks.run(child) == 0
        queue.append(b"a")
    assert held(tmp_path / "q") == [b"a"]


def test_ctrl_c_ends_a_wait_and_the_host(tmp_path: Path) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    others, own = threading.enumerate(), list[threading.Thread]()

    def wait() -> None:
        with Host(source_of(tmp_path / "q")) as host:
            named = (each for each in threading.enumerate() if each.name == "cqrepl host")
            own.extend(each for each in named if each not in others)
            timer.start()
            host.queue().wait_acked(1)

    with pytest.raises(KeyboardInterrupt):
        wait()
    timer.join()
    assert [each.is_alive() for each in own] == [False]  # idle ones of trio may live on
