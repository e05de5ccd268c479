"""Nothing is made, and nothing written, beyond the directory of a queue."""

import os
from pathlib import Path

import pytest

from cqrepl.queue.files import beneath
from cqrepl.queue.files.beneath import make_beneath, open_beneath
from cqrepl.queue.quarantine import quarantine
from tests.support.samples import fill

MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL
NO_CALL = 100_000  # the system answers ENOSYS, as one that does not know the call


@pytest.fixture(params=["openat2", "openat"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: at once, and a component after the other."""
    if request.param == "openat":
        monkeypatch.setattr(beneath, "OPENAT2", NO_CALL)


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A directory that is a link itself."""
    (tmp_path / "real").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "queue").symlink_to("real")
    return tmp_path / "queue"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_lies_beneath_is_made_and_opened(queue: Path) -> None:
    before = descriptors()
    make_beneath(queue, Path("a/b/c"))
    make_beneath(queue, queue / "a" / "d")
    with pytest.raises(FileExistsError, match="a/d"):
        make_beneath(queue, Path("a/d"))
    for name in ("file", "a/b/c/file"):
        os.close(open_beneath(queue, Path(name), MAKE))
        assert (queue / name).stat().st_mode & 0o777 == 0o644
        with pytest.raises(FileExistsError, match=name):
            open_beneath(queue, Path(name), MAKE)
    with pytest.raises(FileNotFoundError, match="a/none"):
        open_beneath(queue, Path("a/none/file"), os.O_RDONLY)
    assert descriptors() == before


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/file"])
@pytest.mark.parametrize("to", ["elsewhere", "real", "nowhere"])
def test_no_link_on_the_way_is_followed(queue: Path, link: str, to: str) -> None:
    before = descriptors()
    place = queue / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(queue.parent / to)
    for flags in (os.O_WRONLY | os.O_CREAT, os.O_RDONLY):
        with pytest.raises(OSError, match="expected no symbolic link beneath"):
            open_beneath(queue, Path("a/b/file"), flags)
    with pytest.raises(OSError, match=r"symbolic link beneath|File exists"):
        make_beneath(queue, Path("a/b/file"))
    assert os.listdir(queue.parent / "elsewhere") == []
    assert descriptors() == before


@pytest.mark.parametrize("path", ["../elsewhere/file", "a/../../file", "/tmp/file", "."])
def test_no_path_leads_out(queue: Path, path: str) -> None:
    for make in (make_beneath, lambda base, where: open_beneath(base, where, MAKE)):
        with pytest.raises(ValueError, match="expected a path beneath"):
            make(queue, Path(path))


def test_a_tail_does_not_leave_the_directory_by_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 10})
    held = {each.name: each.read_bytes() for each in (tmp_path / "q").glob("*.cq4")}
    (tmp_path / "q" / "quarantine").symlink_to(elsewhere)
    start = written[5][0]
    with pytest.raises(OSError, match="expected no symbolic link beneath"):
        quarantine(tmp_path / "q", start)
    assert os.listdir(elsewhere) == []
    assert {each.name: each.read_bytes() for each in (tmp_path / "q").glob("*.cq4")} == held
