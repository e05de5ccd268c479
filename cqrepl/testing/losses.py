"""The losses of a queue: which excerpts a fault has taken, from which copy, and whether from all.

Theory of operation. Nothing is left out of a check because a fault was near it. Right before a
fault and right after it every copy of the queue is read from its disk, also of hosts that do not
run. So it is known what the fault has taken from the copy that it was about, what it has left there
in place of what was written (torn), and which excerpts no copy has any more: those alone may be
missing in the end. A copy counts as behind its marks until it has again what it had.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from cqrepl.queue.format.index import format_index
from cqrepl.testing import storereader
from cqrepl.testing.causes import IN_ANY_CASE, Cause
from cqrepl.testing.checker import Written, digest_of, last_index
from cqrepl.testing.labhosts import Copy
from cqrepl.testing.plan import Kind


class Copied(Protocol):
    """A queue of which several hosts have a copy."""

    @property
    def all_copies(self) -> Sequence[Copy]:
        """Its copies, that of the host which streams it with them."""

    @property
    def written(self) -> Written:
        """All that applications were told was appended to it."""

    @property
    def causes(self) -> list[Cause]:
        """The faults that have changed what a copy holds."""


def held(copy: Copy) -> dict[int, bytes]:
    """The digests of all excerpts in the store files of a copy, by index: also behind a cycle that
    is not closed, and up to where the format is broken. None where a link stands in its place."""
    found: dict[int, bytes] = {}
    if copy.path.is_symlink():
        return found
    try:
        for index, payload in storereader.excerpts(copy.path, behind_open=True):
            found[index] = digest_of(payload)
    except storereader.UnreadableError:
        pass  # what comes behind that no reader gets
    return found


@contextmanager
def taking(queue: Copied, copy: Copy, kind: Kind) -> Iterator[None]:
    """Notes what a fault takes from a copy, within the block, and what it leaves in its place."""
    written, copies = queue.written, queue.all_copies
    before = {each.host.host: held(each) for each in copies}
    end = last_index(copy.path)
    yield
    after = {each.host.host: held(each) for each in copies}
    left = {pair for each in after.values() for pair in each.items()}
    written.taken |= {pair for each in before.values() for pair in each.items()} - left
    was, now = before[copy.host.host], after[copy.host.host]
    for index, digest in now.items():
        if was.get(index) != digest and digest not in written.digests.get(index, ()):
            written.torn.setdefault(index, set()).add(digest)
    if kind is Kind.POWER_CUT and not copy.holds_others:
        _check_synced(written, copy, was, now)
    changed = {index: digest for index, digest in was.items() if now.get(index) != digest}
    if changed or kind in IN_ANY_CASE:
        queue.causes.append(Cause(kind, copy.host.host, min(changed, default=0)))
    if changed:
        copy.lost |= changed
        copy.end_before = max(copy.end_before, end)


def _check_synced(
    written: Written, copy: Copy, was: Mapping[int, bytes], now: Mapping[int, bytes]
) -> None:
    """Notes what a power cut has taken from a copy though its mark says that it was on the disk."""
    mark = storereader.on_disk(copy.path)
    if mark is None:
        return
    for index, digest in was.items():
        if index < mark.end and index not in mark.doubtful and now.get(index) != digest:
            text = f"{copy.title} counts all before {format_index(mark.end)} as on its disk"
            written.unkept.append(f"{text}, and a power cut has taken {format_index(index)}")
            return


def is_behind(copy: Copy, written: Written) -> bool:
    """True while a copy has not got again what a fault has taken from it."""
    if not copy.lost:
        return False
    found = held(copy)
    copy.lost = {
        index: digest
        for index, digest in copy.lost.items()
        if found.get(index) not in written.digests.get(index, ())
        and not (index in found and (index, digest) in written.taken)
    }
    if copy.lost or max(found, default=-1) < copy.end_before:
        copy.lost = copy.lost or {copy.end_before: b""}
        return True
    copy.end_before = -1
    return False
