"""The conditions that one queue of a cluster must keep, under faults and when all is quiet."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import trio

from cqrepl.net.wordwatch import word_watch
from cqrepl.testing.causes import unexplained
from cqrepl.testing.checker import (
    PATIENCE_SECONDS,
    BrokenPromiseError,
    check_arrived,
    check_invented,
    check_kept,
    check_mark,
    check_patience,
    check_readable,
    check_synced,
    content,
    difference,
    is_readable,
    last_index,
)
from cqrepl.testing.cluster import Cluster, Stream
from cqrepl.testing.labhosts import Copy
from cqrepl.testing.losses import held, is_behind
from cqrepl.testing.plan import Fault
from cqrepl.testing.quietanswers import Pair

AFTER_FAULT_SECONDS: Final = 5.0  # to start again, to notice, to dial: not counted as waiting


class Judge:
    """The judge of one queue.

    Args:
        faults: those of the plan.
    """

    def __init__(self, cluster: Cluster, stream: Stream, faults: Iterable[Fault]) -> None:
        self._cluster = cluster
        self._stream = stream
        self._faults = tuple(faults)
        self._ends: deque[tuple[float, int]] = deque()  # of the source, and when that was so

    def check_waiting(self) -> None:
        """Neither the application nor a sink waits longer than a limit where nothing has been in
        the way for so long."""
        now = trio.current_time()
        application, source = self._stream.application, self._stream.source
        self._ends.append((now, last_index(source.path)))
        if application.refused_since is not None:
            since = max(application.refused_since, self._fine_since(self._stream.master))
            check_patience(self._who("the application"), now - since)
        while self._ends[0][0] < now - PATIENCE_SECONDS:
            _, end = self._ends.popleft()
            for sink in self._stream.sinks:
                is_fine = now - self._fine_since(sink.host.host) > PATIENCE_SECONDS
                if is_fine and not self._has_told(sink):
                    check_arrived(sink.title, end, last_index(sink.path))

    def _fine_since(self, host: int) -> float:
        """The time when the last fault was over that this host feels, or that a host feels by which
        the queue comes to it. The source feels all faults."""
        master = self._stream.master
        felt = set(self._stream.way(host)) if host != master else set(self._cluster.hosts)
        now = trio.current_time()
        return max(
            (
                fault.at + fault.lasting + AFTER_FAULT_SECONDS
                for fault in self._faults
                if fault.at <= now and {fault.host, fault.peer or fault.host} <= felt
            ),
            default=0.0,
        )

    def check_marks(self) -> None:
        """No host counts as having what it does not have, nor anything beyond the end of the copy
        that gives it that."""
        check_synced(self._stream.written)
        for giver in self._stream.givers:
            self._check_marks_at(giver)

    def _check_marks_at(self, copy: Copy) -> None:
        source = copy.host.source
        queue = None if source is None else source.queues.get(copy.name)
        if queue is None:
            return
        for host, marks in sorted(queue.marks.items()):
            there = self._cluster.hosts.get(host)
            sink = None if there is None else there.copies[self._stream.master]
            if (
                sink is not None
                and not sink.holds_others
                and not is_behind(sink, self._stream.written)
            ):
                # no level is said beyond what is acknowledged
                highest = max(marks.acknowledged, marks.synced, marks.applied)
                check_mark(sink.title, highest, sink.path)
            if copy.is_own:
                check_mark(self._who("the source itself"), marks.acknowledged, copy.path)
            elif not copy.holds_others and not is_behind(copy, self._stream.written):
                check_mark(copy.title, marks.acknowledged, copy.path)

    @property
    def is_settled(self) -> bool:
        """True when copies are equal, or it was said why not."""
        return all(
            self._has_told(each) or (self._stream.is_settled(each) and not _is_astray(each))
            for each in self._stream.sinks
        )

    @property
    def lacking(self) -> str:
        """The copies that are not equal, for people."""
        lacks = (self._stream.missing(each) for each in self._stream.sinks)
        return "; ".join(filter(None, lacks))

    def append_one(self) -> bool:
        """The application appends an excerpt at the source; false where it cannot, though its
        cycle has room."""
        application = self._stream.application
        count = application.count
        application.append((b"one more, once all is quiet",))
        application.refused_since = None
        word_watch().look()
        return application.count > count or application.refusals.has_full_cycle

    @property
    def answering(self) -> Iterator[Pair]:
        """The copies that are to answer, once all is quiet."""
        for each in self._stream.sinks:
            giver = self._stream.giver(each)
            if not self._has_told(each) and self._stream.is_settled(each) and not _is_astray(each):
                yield Pair(giver, each)

    def _has_told(self, sink: Copy) -> bool:
        """True when it was said why this copy goes no further, or why a copy does by which the
        queue comes to it. Both sides said so, or a process that has ended says so each time that it
        is started."""
        giver = self._stream.giver(sink)
        if not giver.is_own and self._has_told(giver):
            return True
        if sink.host.node is None or giver.host.node is None:
            return bool(sink.host.ends if sink.host.node is None else giver.host.ends)
        return sink.has_stopped and giver.has_told_of(sink)

    def judge(self, *, was_collected: bool) -> None:
        """Checks the queue when all is quiet.

        Args:
            was_collected: retention was at work in the cluster.

        Raises:
            BrokenPromiseError: something is not as it must be.
        """
        stream, told = self._stream, self._cluster.story.tell
        written, source = stream.written, stream.source
        check_synced(written)
        self._check_causes()
        is_damaged = all(map(self._has_told, stream.sinks)) and not is_readable(source.path)
        found = held(source) if is_damaged else content(source.path)
        if not is_damaged:
            check_readable(source.path, found)
        # what was deleted because all sinks have it is asked of them
        first = min(found, default=0) if was_collected else 0
        check_invented(self._who("the source"), found, written)
        have_told = list(filter(self._has_told, stream.sinks))
        stream.differing.update(each.host.host for each in have_told)
        if is_damaged:
            stream.differing.add(stream.master)
        aside = {pair for each in have_told for pair in held(each).items()}
        excused = written.taken | aside
        kept = dict(pair for pair in written.newest.items() if pair not in excused)
        check_kept(self._who("the source"), found, kept, first=first)
        for each in stream.sinks:
            if not self._has_told(each):
                self._judge_copy(each, found, first)
        damaged = ", the source's queue is damaged, as all were told" if is_damaged else ""
        text = f"{len(found)} excerpts, copies are equal or say why not{damaged}"
        told("laboratory", self._who(text))

    def _check_causes(self) -> None:
        """Looks whether each copy that has stopped has done so because of a fault.

        Raises:
            BrokenPromiseError: one has stopped for nothing that was done.
        """
        for each in self._stream.sinks:
            if not self._has_told(each):
                continue
            hosts = self._stream.way(each.host.host)
            for stop in unexplained(each.stops, self._stream.causes, hosts):
                raise BrokenPromiseError("cause", f"{each.title}: no fault explains {stop}")
            if each.host.node is None:
                text = f"{each.title} ends each time that it is started: {each.host.ends[-1]}"
                raise BrokenPromiseError("cause", text)

    def _judge_copy(self, sink: Copy, found: dict[int, bytes], first: int) -> None:
        written = self._stream.written
        if _is_astray(sink):
            raise BrokenPromiseError(
                "refused", f"{sink.title} goes on in the source's own directory"
            )
        copy = content(sink.path)
        check_readable(sink.path, copy)
        check_invented(sink.title, copy, written)
        if not sink.holds_others:  # an operator removed the copy, for what did not come to be
            check_kept(sink.title, copy, written.collected)
        text = difference(found, {index: copy[index] for index in copy if index >= first})
        if text is not None:
            raise BrokenPromiseError("equal", f"{sink.title} differs silently: {text}")
        giver = self._stream.giver(sink)
        if giver.known_of(sink) != max(found, default=-1):
            text = f"{sink.title} has all, and {giver.host.machine.name} was not told so"
            raise BrokenPromiseError("acknowledged", text)

    def _who(self, text: str) -> str:
        """The text, with the name of the queue where there are several."""
        return text if len(self._cluster.streams) == 1 else f"{self._stream.source.name}: {text}"


def _is_astray(sink: Copy) -> bool:
    """True when an operator has led its path into the source's directory."""
    return sink.path.is_symlink()
