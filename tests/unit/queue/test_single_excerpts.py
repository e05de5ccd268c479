"""One by one: iteration, waiting, and how it goes together with batches."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqrepl.queue import ExcerptBatch, Queue, Tailer
from cqrepl.queue.format.excerpt import Excerpt
from cqrepl.queue.read.pauser import Pauser
from tests.support.reading import Clock, cycles_of, some_of
from tests.support.samples import NOON_MS, Excerpts, fill, noon_index, rest_of

QUICK = Pauser(spins=0, yields=0, sleep_min_s=0.000_1, sleep_max_s=0.001)


def singles(tailer: Tailer) -> Excerpts:
    return [(excerpt.index, bytes(excerpt)) for excerpt in tailer]


def test_an_excerpt_is_an_index_and_its_bytes() -> None:
    excerpt = Excerpt(0x10, memoryview(b"abc"))
    assert (excerpt.index, bytes(excerpt), len(excerpt)) == (0x10, b"abc", 3)
    assert repr(excerpt) == "Excerpt(0x10, 3 bytes)"
    assert Excerpt(1, memoryview(b""))


def test_iteration_gives_all_that_is_there_and_goes_on_later(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3000, 1: 5, 7: 2}, per_batch=1000)
    with Queue.open_for_append(path) as queue:
        tailer = Tailer(cycles_of(path), 0)
        assert singles(tailer) == written
        assert singles(tailer) == []
        assert tailer.next_excerpt() is None
        index = queue.appender().append([b"more"], NOON_MS)
        assert [(excerpt.index, bytes(excerpt)) for excerpt in tailer] == [(index, b"more")]
        tailer.close()


def test_leaving_the_loop_loses_nothing(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 10})
    tailer = Tailer(cycles_of(path), 0)
    for excerpt in tailer:
        if excerpt.index == written[3][0]:
            break
    assert tailer.next_index == written[4][0]
    assert rest_of(tailer) == written[4:]
    tailer.close()


def test_has_next_takes_nothing(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3})
    tailer = Tailer(cycles_of(path), 0)
    for _ in range(3):
        assert tailer.has_next()
        assert tailer.next_index == written[0][0]
    assert singles(tailer) == written
    assert not tailer.has_next()
    tailer.close()


def test_wait_ends_when_its_time_is_over(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    tailer = Tailer(cycles_of(path), noon_index(sequence=1), pauser=QUICK)
    for timeout_s in (-1.0, 0.0, 0.01):
        assert not tailer.wait(timeout_s)
    tailer.close()


class AppendingPauser(Pauser):
    """Each time that its tailer has found nothing and would wait, a second passes, and what comes
    next is appended."""

    def __init__(self, clock: Clock, appends: list[Callable[[], object]]) -> None:
        super().__init__()
        self._clock = clock
        self.appends = appends

    def pause(self, limit_s: float | None = None) -> None:
        self._clock.now += 1
        self.appends.pop(0)()


def test_wait_and_follow_block_until_something_comes(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        later = [(noon_index(sequence=n), b"%d" % n) for n in range(1, 6)]
        appends = [partial(appender.append, [data], NOON_MS) for _, data in later]
        last = ExcerptBatch.of(noon_index(ahead=1), [b"last"])
        clock = Clock()
        pauser = AppendingPauser(clock, [*appends, partial(appender.append_at, last)])
        tailer = Tailer(cycles_of(path), noon_index(sequence=1), clock, pauser=pauser)
        assert tailer.wait(60)
        assert len(pauser.appends) == 5
        assert some_of(tailer.follow(), 6) == [*later, (noon_index(ahead=1), b"last")]
        assert pauser.appends == []
        tailer.close()


def test_an_excerpt_that_is_held_keeps_its_bytes(path: Path) -> None:
    """More than is promised: a view never shows another file's bytes, even after `close`."""
    written = fill(path, "FAST_DAILY", {0: 2000, 1: 2000}, per_batch=1000)
    tailer = Tailer(cycles_of(path), 0)
    held = list(tailer)
    tailer.close()
    assert [(one.index, bytes(one)) for one in held] == written
    assert held[0].data.readonly
