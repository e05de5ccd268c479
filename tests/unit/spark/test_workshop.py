"""The folder in which a queue is built belongs to one run at a time."""

from pathlib import Path
from uuid import uuid4

import pytest

from cqrepl.queue import QueueError
from cqrepl.spark.jobs.cyclebuilder import workshop


def test_a_second_run_leaves_the_first_one_its_folder(tmp_path: Path) -> None:
    with workshop(tmp_path / "q") as folder:
        (folder / "made").mkdir()
        with pytest.raises(QueueError, match="another process is building it"):
            with workshop(tmp_path / "q"):
                pass
        assert (folder / "made").is_dir()
    assert not folder.exists()


def test_what_a_run_that_was_cut_off_has_left_goes(tmp_path: Path) -> None:
    left = tmp_path / "q.building"
    (left / uuid4().hex).mkdir(parents=True)
    (left / f"{uuid4().hex}-19675").mkdir()
    (left / f"{uuid4().hex}.laid").touch()
    with workshop(tmp_path / "q") as folder:
        assert list(folder.iterdir()) == []
    assert not left.exists()


@pytest.mark.parametrize("name", ["orders", "20231114.cq4", ".hidden"])
def test_a_folder_of_somebody_else_stays_as_it_is(tmp_path: Path, name: str) -> None:
    left = tmp_path / "q.building"
    (left / uuid4().hex).mkdir(parents=True)
    (left / name).write_bytes(b"theirs")
    with pytest.raises(QueueError, match=f"expected what a run .* found {name}"):
        with workshop(tmp_path / "q"):
            pass
    assert len(list(left.iterdir())) == 2
    assert not (tmp_path / "q").exists()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("target", ["/proc/q", "/proc/queues/q"])
def test_a_folder_that_cannot_be_made_is_an_error(target: str) -> None:
    """The kernel answers `mkdir` in /proc with ENOENT, as it does in a directory that is gone."""
    with pytest.raises(FileNotFoundError, match="/proc/q"):
        with workshop(Path(target)):
            pass
