"""The conditions that every run must keep: one piece of code for all of them.

While faults come: no mark says that a host has what it does not have. When they are over and all
is quiet: every copy holds the same as the source, or both sides were told why not; what an
application wrote stands where it was told that it stands, unless its own disk has lost it; and no
excerpt is anywhere that no application ever wrote at that index.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.index import format_index
from cqrepl.testing import storereader

PATIENCE_SECONDS: Final = 15.0


class BrokenPromiseError(Exception):
    """A check failed; `check` is its name."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


def digest_of(payload: bytes) -> bytes:
    """The digest of an excerpt, 12 bytes."""
    return hashlib.sha256(payload).digest()[:12]


@dataclass
class Written:
    """All that applications were told was appended: for each index, what may stand there."""

    digests: dict[int, set[bytes]] = field(default_factory=dict)
    newest: dict[int, bytes] = field(default_factory=dict)
    collected: dict[int, bytes] = field(default_factory=dict)  # retention took them off the source
    torn: dict[int, set[bytes]] = field(default_factory=dict)  # what power cuts have left
    taken: set[tuple[int, bytes]] = field(default_factory=set)  # faults left these on no copy
    unkept: list[str] = field(default_factory=list)  # of marks that were not true
    is_open: bool = False  # others append, too, and nothing is known of what they do
    queues: int = 1  # that were begun, one after the other

    def begin_anew(self) -> None:
        """The queue is another one from now on: what was in the last one belongs nowhere."""
        self.digests.clear()
        self.newest.clear()
        self.collected.clear()
        self.torn.clear()
        self.taken.clear()
        self.queues += 1

    def copy(self) -> "Written":
        """The same, which what is noted from now on does not change."""
        return deepcopy(self)

    def go_back(self, before: "Written") -> None:
        """The queue that was begun since that copy was taken holds nothing: its sinks may bring
        back what was written before."""
        self.digests, self.newest = before.digests, before.newest
        self.collected, self.torn, self.taken = before.collected, before.torn, before.taken

    def note(self, index: int, payload: bytes) -> None:
        digest = digest_of(payload)
        self.digests.setdefault(index, set()).add(digest)
        self.newest[index] = digest


def content(path: Path) -> dict[int, bytes]:
    """The digests of all excerpts of a queue, by index; none where there is no queue. The
    laboratory's own reader reads them.

    Raises:
        BrokenPromiseError: the format is broken, or an index does not rise.
    """
    found: dict[int, bytes] = {}
    last = -1
    try:
        for index, payload in storereader.excerpts(path):
            if index <= last:
                text = f"{format_index(index)} comes after {format_index(last)} in {path}"
                raise BrokenPromiseError("order", text)
            found[index] = digest_of(payload)
            last = index
    except storereader.UnreadableError as error:
        raise BrokenPromiseError("readable", str(error)) from error
    return found


def check_readable(path: Path, found: Mapping[int, bytes]) -> None:
    """A program reads from a queue all that is there, and nothing else: the product's reader finds
    what the laboratory's own has found.

    Raises:
        BrokenPromiseError: it finds something else, or it ends with an error.
    """
    if not any(path.glob("*.cq4")):
        return
    try:
        with Queue.open(path) as queue:
            tailer = queue.tailer()
            read: dict[int, bytes] = {}
            while (batch := tailer.next_batch()) is not None:
                read |= {index: digest_of(bytes(data)) for index, data in batch}
    except QueueError as error:
        raise BrokenPromiseError("readable", str(error)) from error
    text = difference(found, read)
    if text is not None:
        raise BrokenPromiseError("readable", f"a reader of {path}: {text}")


def is_readable(path: Path) -> bool:
    """False for a queue that a program cannot read to its end."""
    try:
        check_readable(path, content(path))
    except BrokenPromiseError:
        return False
    return True


def last_index(path: Path) -> int:
    """The last index of a queue; -1 while there is none, or where the format is broken. The
    laboratory's own reader finds it."""
    try:
        return storereader.last_index(path)
    except storereader.UnreadableError:
        return -1


def check_mark(who: str, acknowledged: int, path: Path) -> None:
    """A host has what it has acknowledged; and so has the source."""
    last = last_index(path)
    if acknowledged > last:
        raise BrokenPromiseError(
            "marks",
            f"{format_index(acknowledged)} counts as acknowledged,"
            f" and {who} holds nothing beyond {format_index(max(last, 0))}",
        )


def check_synced(written: Written) -> None:
    """All that counted as on a disk was there after its power was cut."""
    for text in written.unkept:
        raise BrokenPromiseError("synced", text)


def check_patience(who: str, seconds: float) -> None:
    """No application is kept out for long."""
    if seconds > PATIENCE_SECONDS:
        raise BrokenPromiseError("waiting", f"{who} was kept out for {seconds:.0f} s")


def check_moving(busy: Collection[str]) -> None:
    """No host goes round in circles, which takes a whole core where time passes."""
    if busy:
        raise BrokenPromiseError("moving", f"never wait for anything: {', '.join(sorted(busy))}")


def check_arrived(who: str, end: int, last: int) -> None:
    """The excerpts that were there when the wait began have come."""
    if last < end:
        raise BrokenPromiseError(
            "waiting",
            f"{who} has not got {format_index(end)} for {PATIENCE_SECONDS:g} s,"
            " and nothing was in the way",
        )


def check_agreed(said: Iterable[str]) -> None:
    """Two hosts of ours never choose the same cid, nor refuse what the other registers by it."""
    for text in said:
        if "is bound to" in text:
            raise BrokenPromiseError("cids", text)


def check_invented(name: str, found: Mapping[int, bytes], written: Written) -> None:
    """Nothing stands anywhere that was not written there."""
    if written.is_open:
        return
    for index, digest in found.items():
        if digest in written.torn.get(index, ()):
            continue
        if digest not in written.digests.get(index, ()):
            known = "others were" if index in written.digests else "nothing was"
            raise BrokenPromiseError(
                "altered", f"{name} has an excerpt at {format_index(index)} where {known} written"
            )


def check_kept(
    name: str, found: Mapping[int, bytes], expected: Mapping[int, bytes], *, first: int = 0
) -> None:
    """All that is expected from `first` on is there."""
    for index, digest in expected.items():
        if index >= first and found.get(index) != digest:
            raise BrokenPromiseError("lost", f"{name} has lost {format_index(index)}")


def difference(source: Mapping[int, bytes], copy: Mapping[int, bytes]) -> str | None:
    """The first difference of two copies; None when they are equal."""
    for index in sorted(source.keys() | copy.keys()):
        if source.get(index) != copy.get(index):
            where = (
                "only the source has it"
                if index not in copy
                else "only the copy has it"
                if index not in source
                else "they hold other bytes"
            )
            return f"{format_index(index)}: {where}"
    return None
