"""The folder in which a queue is built belongs to one run at a time."""

from pathlib import Path

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
    (tmp_path / "q.building" / "left").mkdir(parents=True)
    with workshop(tmp_path / "q") as folder:
        assert list(folder.iterdir()) == []
