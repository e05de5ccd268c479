"""A pipe or the like under the name of a side file keeps no process waiting, and is named."""

import errno
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, MERGED_FILE_NAME, store_epochs
from cqrepl.queue.files.markslots import SLOTS_FILE_NAME, MarkLevel
from cqrepl.queue.files.sidefile import open_side_file, read_side_file, replace_side_file
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME, load_synced, store_synced
from cqrepl.queue.format.epochs import EPOCHS_MAX, Epoch, Epochs
from cqrepl.queue.format.index import Index
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.inspection.differences import Flaw
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.inspection.verification import verify
from cqrepl.queue.read.chains import Chains
from tests.support.invoke import Invoke, invoke
from tests.support.samples import fill, noon_index, noon_path
from tests.support.tables import fill_keys

__all__ = ["invoke"]
pytestmark = pytest.mark.timeout(120)  # one that waits for a pipe waits for ever
COUNTS = {0: 5, 1: 300, 2: 7}


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)  # `bind` takes no name as long as this one


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_a_file(path: Path) -> None:
    (path.parent.parent / "elsewhere").write_bytes(b"of somebody else")
    path.symlink_to(path.parent.parent / "elsewhere")


Make = Callable[[Path], None]
MAKES: dict[str, Make] = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a directory": os.mkdir,
    "a symbolic link to a device": link_to_a_device,
    "a symbolic link": link_to_a_file,
}
in_its_place = pytest.mark.parametrize("kind", MAKES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", COUNTS)
    return tmp_path / "q"


def said(kind: str) -> str:
    return f"expected a regular file, found {kind.removesuffix(' to a device')}"


@in_its_place
def test_it_is_named_and_left(path: Path, kind: str) -> None:
    file = path / "some.cqmark"
    MAKES[kind](file)
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(OSError, match=said(kind)) as told:
            open_side_file(file, flags)
        assert told.value.filename == str(file)
    with pytest.raises(OSError, match=said(kind)):
        read_side_file(file)


@in_its_place
def test_what_stands_where_a_new_one_is_written_is_no_obstacle(path: Path, kind: str) -> None:
    if kind == "a directory":
        pytest.skip("it may hold something")
    file = path / "some.cqmark"
    MAKES[kind](file.with_name(f"{file.name}.{os.getpid()}"))
    for data in (b"one", b"two"):
        replace_side_file(file, data, is_synced=True)
        assert read_side_file(file) == data
    assert read_side_file(file, 2) == b"tw"
    assert [each.name for each in path.glob("some*")] == [file.name]


@in_its_place
def test_what_closed_cycles_held(path: Path, kind: str) -> None:
    MAKES[kind](path / CLOSED_FILE_NAME)
    with Queue.open(path) as queue:
        with pytest.raises(OSError, match=said(kind)):
            queue.cycles.closed.load()
        with pytest.raises(OSError, match=said(kind)):
            ClosedFiles(queue.cycles, Chains(queue.cycles)).look(noon_index(ahead=2))
        with pytest.raises(OSError, match=said(kind)):
            queue.count()
    (finding,) = inspect_queue(path).findings
    assert said(kind) in finding.text
    assert finding.path == path / CLOSED_FILE_NAME


@in_its_place
def test_how_far_a_queue_is_on_the_disk(path: Path, kind: str) -> None:
    MAKES[kind](path / SYNCED_FILE_NAME)
    with pytest.raises(OSError, match=said(kind)):
        load_synced(path)
    with pytest.raises(OSError, match=said(kind)):
        store_synced(path, noon_index(ahead=1))
    (finding,) = inspect_queue(path).findings
    assert said(kind) in finding.text


@in_its_place
def test_marks_of_hosts(path: Path, kind: str) -> None:
    fill_keys(path, 32_768)  # what comes has no room in the table store
    MAKES[kind](path / SLOTS_FILE_NAME)
    with Queue.open_for_append(path) as queue:
        assert not queue.host_marks.raise_to(7, MarkLevel.SENT, noon_index())
        with pytest.raises(OSError, match=said(kind)):
            queue.host_marks.load()
    (finding,) = inspect_queue(path).findings
    assert said(kind) in finding.text


@in_its_place
def test_chains(path: Path, kind: str) -> None:
    """Chains are read anew, and their file replaces what stands there, but no directory: it may
    hold something."""
    file = noon_path(path).with_suffix(CHAIN_SUFFIX)
    MAKES[kind](file)
    told = [each.finding for each in verify([path]) if isinstance(each, Flaw)]
    assert [each.path for each in told] == [file]
    assert said(kind) in told[0].text
    with Queue.open(path) as queue:
        chains = Chains(queue.cycles)
        assert chains.at(Index(noon_index(sequence=5))) == chains.read_at(noon_index(sequence=5))
        if kind == "a directory":
            with pytest.raises(OSError, match="directory"):
                chains.save(noon_index(ahead=1))
        else:
            chains.save(noon_index(ahead=1))
            assert file.is_file()
            assert not file.is_symlink()


NAMES = [CLOSED_FILE_NAME, SYNCED_FILE_NAME, SLOTS_FILE_NAME, EPOCH_FILE_NAME, MERGED_FILE_NAME]


@pytest.mark.parametrize(
    "command", ["info", "verify", "repair", "tail", "unlock", "gc", "info --deep"]
)
@pytest.mark.parametrize("name", NAMES)
@in_its_place
def test_no_command_waits(path: Path, invoke: Invoke, command: str, name: str, kind: str) -> None:
    if name == MERGED_FILE_NAME:  # it is looked at only where there is a full history
        history = tuple(Epoch(number, 1, noon_index()) for number in range(1, EPOCHS_MAX + 1))
        store_epochs(path, Epochs(promised=EPOCHS_MAX, promised_to=1, history=history))
    MAKES[kind](path / name)
    word, *options = command.split()
    more: dict[str, list[object]] = {"tail": ["-n", "400"]}
    result = invoke(word, path, *options, *more.get(word, []))
    assert result.exit_code in (0, 2)
    if word == "info" or result.exit_code:
        assert said(kind) in result.output
        assert str(path / name) in result.output
    with Queue.open(path) as queue:
        queue.append(b"more")
    elsewhere = path.parent / "elsewhere"
    assert not elsewhere.exists() or elsewhere.read_bytes() == b"of somebody else"


def test_one_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    """It is not there, and that is not the reason: here there are no descriptors left."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError) as found:
            open_side_file(tmp_path / CLOSED_FILE_NAME, os.O_RDWR | os.O_CREAT)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found.value.errno == errno.EMFILE


def test_one_that_is_written_in_part_takes_nobody_s_place(tmp_path: Path) -> None:
    """The system writes what there is room for, and says how much that was."""
    path = tmp_path / "side"
    path.write_bytes(b"a" * 9000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_side_file(path, b"b" * 8000, is_synced=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"a" * 9000
    assert list(tmp_path.iterdir()) == [path]
