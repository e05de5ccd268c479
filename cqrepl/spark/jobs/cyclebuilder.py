"""Makes the store files of a queue one by one, and puts them into place. Knows nothing of Spark.

Theory of operation. A cycle is a store file that stands for itself, so each is made apart, in a
queue directory of its own beside the target, by the task that has it (`cyclemaker` tells how a
large one is made by several). Nothing is in the target
before the driver links the finished and synced files there, the lowest cycle first; a name that
exists is never replaced. Last the table store is made, and cycles below the last one are closed,
as every writer does. A run that was cut off leaves whole files only, and the next one
goes on behind them.
"""

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from cqrepl.kernel.batch import NO_LIMIT
from cqrepl.queue import ExcerptBatch, Queue, QueueError, QueueLayout
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.format.errors import NO_ROOM
from cqrepl.spark.jobs.blocks import digest_of, read_pieces
from cqrepl.surroundings import make_synced, sync_path

Span = tuple[int, int, str]  # first index, last index and digest of a block
_SUFFIX: Final = ".building"
_OURS: Final = re.compile(r"[0-9a-f]{32}(\.laid|-\d+)?")  # what runs make in a workshop


@contextmanager
def workshop(target: Path) -> Iterator[Path]:
    """A folder beside the target, for the length of a block, that only one process uses.

    Raises:
        QueueError: the target is no directory, or none that finished files can be linked into; it
            is being built; or what is in the folder was not left by a run.
        OSError: nothing can be made beside it.
    """
    if target.exists() and not target.is_dir():
        raise QueueError("expected a queue directory, or none yet", path=target)
    folder = target.with_name(target.name + _SUFFIX)
    try:
        descriptor = _locked(folder)
    except BlockingIOError as error:
        raise QueueError("another process is building it", path=target) from error
    try:
        _clear(folder)
        try:
            _check_links(folder, target)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _clear(folder: Path) -> None:
    """Removes what a run has left that was cut off.

    Raises:
        QueueError: there is something else. Nothing is removed.
    """
    found = sorted(folder.iterdir())
    others = [path.name for path in found if not _OURS.fullmatch(path.name)]
    if others:
        raise QueueError(
            f"expected what a run that was cut off has left, found {others[0]}", path=folder
        )
    for left in found:
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _locked(folder: Path) -> int:
    """A descriptor of the folder, which is made; it is locked until that is closed.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be made.
    """
    while True:
        make_synced(folder.parent)
        folder.mkdir(exist_ok=True)
        with ExitStack() as stack:
            # the process that had it removes it when it is done, at any of these steps
            with suppress(FileNotFoundError):
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    stack.pop_all()
                    return descriptor


def _check_links(folder: Path, target: Path) -> None:
    """Does nothing where files of the folder can be linked into the target, as far as it is there:
    else that would be found out at the end of all work.

    Raises:
        QueueError: they cannot.
    """
    if not target.exists():
        return
    if not os.access(target, os.W_OK | os.X_OK):
        raise QueueError("expected a directory that can be written to", path=target)
    if _are_apart(folder, target):
        raise QueueError(f"expected it on the same file system as {folder.parent}", path=target)


def _are_apart(folder: Path, other: Path) -> bool:
    """True when no file can be linked from one folder into another one.

    A device that is mounted twice has one device number, and yet its mounts are apart. So a rename
    of a file that does not exist is tried: the system refuses it with `EXDEV` before it looks for
    the file. Nothing is made that a kill could leave behind.
    """
    if folder.stat().st_dev != other.stat().st_dev:
        return True
    name = uuid4().hex
    try:
        (folder / name).rename(other / name)
    except OSError as error:
        return error.errno == errno.EXDEV
    return False


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Removes what was made in a block that the disk had no room for; the error names it.

    Raises:
        OSError: what was raised in the block.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        # another attempt will need the room
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def build_cycle(
    folder: Path, layout: QueueLayout, batches: Iterable[ExcerptBatch], *, is_closed: bool
) -> Path:
    """A store file that holds these excerpts of one cycle, somewhere in the folder.

    Raises:
        QueueError: they cannot be appended, as `Appender.append_at`.
        OSError: no space; then nothing is left.
    """
    place = folder / uuid4().hex
    with making(place), Queue.open_for_append(place, create=layout) as queue:
        # their lengths have been kept where they came from
        appender = queue.appender(payload_max=NO_LIMIT)
        for batch in batches:
            appender.append_at(batch)
        if is_closed:
            appender.end_cycle()
        path = next(place.glob("*.cq4"))
    with making(place):
        sync_path(path)
    return path


def install(target: Path, layout: QueueLayout, files: Sequence[Path]) -> None:
    """Puts finished store files into a queue directory, which is made if need be.

    Raises:
        QueueError: a cycle has come into it meanwhile.
        LayoutMismatch: there is a queue of another layout.
    """
    make_synced(target)
    for path in sorted(files, key=lambda path: path.name):
        try:
            os.link(path, target / path.name)
        except FileExistsError as error:
            raise QueueError("it has come meanwhile", path=target / path.name) from error
    with Queue.open_for_append(target, create=layout) as queue:
        queue.appender().close()  # closes the cycles below the last one
    sync_path(target / FILE_NAME)
    sync_path(target)


def check_built(file: Path, spans: Sequence[Span]) -> None:
    """Does nothing when the only store file of a directory holds these blocks.

    Raises:
        QueueError: one of them is another one, or cannot be read.
    """
    with Queue.open(file.parent) as queue:
        for first, last, digest in spans:
            if digest_of(first, read_pieces(queue, first, last)) != digest:
                raise QueueError(f"{first:#x} to {last:#x} became something else", path=file)


def check_held(file: Path, spans: Sequence[Span], *, is_last: bool) -> None:
    """Does nothing when a store file holds these blocks.

    Args:
        spans: without a gap.
        is_last: nothing else may follow them.

    Raises:
        QueueError: it holds something else, or cannot be read.
    """
    first, last = spans[0][0], spans[-1][1]
    with Queue.open(file.parent) as queue:
        is_same = queue.count(first, last + is_last) == last + 1 - first and all(
            digest_of(start, read_pieces(queue, start, end)) == digest
            for start, end, digest in spans
        )
    if not is_same:
        raise QueueError(
            f"expected {first:#x} to {last:#x} as they are elsewhere, found other ones",
            path=file,
        )
