"""Opens a queue directory: its table store, or a layout that file names alone tell."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from cqrepl.queue.files import atomics
from cqrepl.queue.files.cycles import Cycles, store_names
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, MEMBERS_FILE_NAME, MERGED_FILE_NAME
from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.maker import READY, make_file
from cqrepl.queue.files.mapping import RECORD_LOCK_GUARD, check_no_link
from cqrepl.queue.files.storefile import SUFFIX, StoreFile
from cqrepl.queue.files.tablestore import (
    FILE_BYTES,
    FILE_NAME,
    FILE_NAME_V4,
    TableStore,
    table_header_image,
)
from cqrepl.queue.format import rollcycle
from cqrepl.queue.format.errors import (
    NO_ROOM,
    LayoutMismatch,
    NotAQueue,
    QueueDamaged,
    UnfinishedQueue,
    cannot_open,
)
from cqrepl.queue.format.layout import QueueLayout
from cqrepl.surroundings import surroundings
from wire.header import is_ready

_PROMISES: Final = (EPOCH_FILE_NAME, MEMBERS_FILE_NAME, MERGED_FILE_NAME)


def place_of(path: Path) -> int:
    """A number that two processes see only for one and the same queue, by whatever path, mount or
    hard link; 0 where there is none."""
    return surroundings().place_of(path / FILE_NAME) or surroundings().place_of(path)


def is_one_of(path: Path, places: Collection[int]) -> bool:
    """True for a queue's directory that is one of these places, or holds hard links to what is in
    one of them."""
    own = place_of(path)
    return own != 0 and own in places


def open_table(
    path: Path, *, writable: bool, create: QueueLayout | None = None
) -> TableStore | None:
    """The table store in a directory; None when there is none, and none is to be created."""
    try:
        is_directory = path.is_dir()
    except OSError as error:
        raise cannot_open(error, path) from error
    if not is_directory:
        found = "a file" if path.exists() else "none"
        raise NotAQueue(f"expected a queue directory, found {found}", path=path)
    file = path / FILE_NAME
    try:
        if not file.exists():
            if writable:
                check_no_link(file)  # one that leads nowhere
            _check_names(path, create)
            if create is None:
                return None
        if create is not None:
            if not file.exists():
                _make(file, create)
            return TableStore.create(file, create)  # also one that its creator died over
        return _table_store(path, writable=writable)
    except OSError as error:
        if error.errno in NO_ROOM:  # there is none for a new queue
            error.filename = error.filename or str(file)
            raise
        raise cannot_open(error, file) from error


def _table_store(path: Path, *, writable: bool) -> TableStore:
    try:
        return TableStore(path / FILE_NAME, writable=writable)
    except QueueDamaged as error:
        if error.position == 0 and not store_names(path):
            # nothing is in it yet: its creator is at work or has died, the next one begins anew
            raise UnfinishedQueue(f"expected a queue: {error.reason}", path=path) from error
        raise


def _make(file: Path, layout: QueueLayout) -> None:
    """Makes a table store that is whole by the time it has its name: a creator that dies, or finds
    the disk full, leaves none that others would wait for."""
    image = table_header_image(layout).ljust(FILE_BYTES, b"\0")
    with RECORD_LOCK_GUARD:  # two threads of this process would make it under one name
        # another process may make it too: where it cannot be linked, it is made where it stands
        make_file(file, image, is_synced=False, may_replace=False)


def is_unfinished(file: Path) -> bool:
    """True for a file that the creator of a queue has left when it died, or found the disk full: a
    file that never got its name, or a table store without a header, as Java leaves it. False for
    one that cannot be read: the process that opens it tells why."""
    if file.name != FILE_NAME:
        return file.name.startswith(FILE_NAME + READY)
    try:
        with FileBytes(file) as made:
            return not is_ready(made.word(0))
    except (OSError, QueueDamaged):
        return False


def holds_queue(path: Path) -> bool:
    """True for a directory with anything but what may be there before any queue: a promise, or
    what a creator left. What makes a queue where there is none asks so.

    Raises:
        OSError: it cannot be listed.
    """
    return path.is_dir() and any(
        each.name not in _PROMISES and not is_unfinished(each) for each in path.iterdir()
    )


def open_for_writing(path: Path, create: QueueLayout | None = None) -> TableStore:
    """The table store in a directory, to be written to; created like `create` if there is none.

    Raises:
        NotAQueue: there is none, and none is to be created.
        AtomicsMissing: a library is missing that writing needs.
    """
    atomics.require()
    table = open_table(path, writable=True, create=create)
    if table is None:
        raise NotAQueue(f"expected a queue with {FILE_NAME}, found none", path=path)
    return table


def guess_layout(path: Path, names: list[str]) -> QueueLayout:
    """The layout that the names of store files tell, where there is no table store.

    Args:
        names: as `store_names` has listed the directory.
    """
    if not names:
        raise NotAQueue(f"expected a queue, found no {FILE_NAME} and no store file", path=path)
    try:
        return QueueLayout.of(rollcycle.by_file_name(names[0].removesuffix(SUFFIX)), 0)
    except ValueError as error:
        raise NotAQueue(str(error), path=path) from error


def _check_names(path: Path, create: QueueLayout | None) -> None:
    """Refuses a version 4 queue, and a table store beside store files of another roll cycle."""
    if (path / FILE_NAME_V4).exists():
        raise NotAQueue(
            f"expected a queue of version 5, found {FILE_NAME_V4} of version 4", path=path
        )
    if create is None:
        return
    for name in store_names(path):
        if create.roll_cycle.cycle_of_name(name.removesuffix(SUFFIX), create.epoch) is None:
            raise LayoutMismatch(f"expected {create}, found {name}", path=path)


def with_indexing(
    path: Path, layout: QueueLayout, create: QueueLayout | None = None
) -> QueueLayout:
    """The layout with the indexing numbers of the newest store file, else those of `create`."""
    cycles = Cycles(path, layout.roll_cycle, layout.epoch)
    for cycle in reversed(cycles.listing()):
        try:
            store = StoreFile.open(cycles.path_of(cycle), cycle, writable=False)
        except FileNotFoundError:  # removed since it was listed
            continue
        except OSError as error:
            raise cannot_open(error, cycles.path_of(cycle)) from error
        if store is not None:
            store.close()
            numbers = store.header
            return replace(
                layout, index_count=numbers.index_count, index_spacing=numbers.index_spacing
            )
    if create is None:
        return layout
    return replace(layout, index_count=create.index_count, index_spacing=create.index_spacing)
