"""The losses of a queue: which excerpts a fault has taken, from which copy, and whether from all.

Theory of operation. Nothing is left out of a check because a fault was near it. Right before a
fault and right after it every copy of the queue is read from its disk, also of hosts that do not
run. So it is known what the fault has taken from the copy that it was about, what it has left there
in place of what was written (torn), and which excerpts no copy has any more: those alone may be
missing in the end. A copy counts as behind its marks until it has again what it had.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from cqrepl.testing import storereader
from cqrepl.testing.causes import IN_ANY_CASE, Cause
from cqrepl.testing.checker import digest_of, last_index
from cqrepl.testing.cluster import Stream
from cqrepl.testing.labhosts import Copy
from cqrepl.testing.plan import Kind


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
def taking(stream: Stream, copy: Copy, kind: Kind) -> Iterator[None]:
    """Notes what a fault takes from a copy, within the block, and what it leaves in its place."""
    written = stream.application.written
    copies = [stream.source, *stream.sinks]
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
    changed = {index: digest for index, digest in was.items() if now.get(index) != digest}
    if changed or kind in IN_ANY_CASE:
        stream.causes.append(Cause(kind, copy.host.host, min(changed, default=0)))
    if changed:
        copy.lost |= changed
        copy.end_before = max(copy.end_before, end)


def is_behind(copy: Copy, stream: Stream) -> bool:
    """True while a copy has not got again what a fault has taken from it."""
    if not copy.lost:
        return False
    written, found = stream.application.written, held(copy)
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
