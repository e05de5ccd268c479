"""`cqrepl repair --accept-missing`, also of an end that is gone, and `--accept-unproved`."""

import json
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.closedcycles import ClosedCycle, ClosedCycles
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.format.index import Cycle
from cqrepl.queue.inspection.closedfiles import ClosedFiles
from cqrepl.queue.read.chains import Chains
from tests.commands.test_quarantine import reader_of
from tests.support.invoke import Invoke, invoke
from tests.support.samples import fill, noon_index, noon_path, read

__all__ = ["invoke"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a queue that has lost its second store file, and lies half behind its mark."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5, 1: 2, 2: 6})
    with Queue.open(tmp_path / "q") as queue:
        ClosedFiles(queue.cycles, Chains(queue.cycles)).look(noon_index(ahead=2))
    noon_path(tmp_path / "q", ahead=1).unlink()
    with pytest.MonkeyPatch.context() as before:
        before.setattr(syncedmark, "this_boot", lambda: bytes(16))
        store_synced(tmp_path / "q", noon_index(ahead=2, sequence=2))
    return tmp_path / "q"


def test_missing_files_are_let_go_once_that_is_asked_for(path: Path, invoke: Invoke) -> None:
    assert "--accept-missing" in invoke("info", path).stdout
    said = invoke("repair", path, "--accept-missing")
    assert (said.exit_code, len(ClosedCycles(path).load())) == (0, 2)
    assert f"{noon_path(path, ahead=1).name}: expected 2 excerpts" in said.stdout
    assert "nothing was changed" in said.stdout
    result = invoke("repair", path, "--accept-missing", "--apply", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "v": 1, "kind": "accept-missing", "path": str(noon_path(path, ahead=1)),
        "cycle": noon_index(ahead=1) >> 32, "noted": 2, "excerpts": None, "applied": True,
    }  # fmt: skip
    assert len(read(path)) == 11
    assert invoke("info", path).exit_code == 0
    again = invoke("repair", path, "--accept-missing", "--apply")
    assert "holds what it held" in again.stdout


def test_an_unproved_end_counts_as_proved_once_asked_for(path: Path, invoke: Invoke) -> None:
    assert "unproved from" in invoke("info", path).stdout
    mark, said = load_synced(path), invoke("repair", path, "--accept-unproved")
    assert (said.exit_code, load_synced(path)) == (0, mark)
    assert f"4 excerpts from {hex(noon_index(ahead=2, sequence=2))} on" in said.stdout
    assert "nothing was changed" in said.stdout
    result = invoke("repair", path, "--accept-unproved", "--apply", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "v": 1, "kind": "accept-unproved", "path": str(path),
        "index_first": hex(noon_index(ahead=2, sequence=2)),
        "next_index": hex(noon_index(ahead=2, sequence=6)),
        "excerpts": 4, "torn": [], "applied": True,
    }  # fmt: skip
    assert "unproved from" not in invoke("info", path).stdout
    assert "nothing is unproved" in invoke("repair", path, "--accept-unproved", "--apply").stdout


def test_a_process_that_has_the_queue_open_is_in_the_way(path: Path, invoke: Invoke) -> None:
    noon_path(path).unlink()
    with reader_of(path) as pid:
        result = invoke("repair", path, "--accept-unproved", "--apply")
        assert result.exit_code == 5
        assert str(pid) in result.stderr
        assert "unproved from" in invoke("info", path).stdout
    assert invoke("repair", path, "--accept-unproved", "--apply").exit_code == 0


def lost_end(path: Path, how: str) -> tuple[int, str]:
    """A queue of another start of the machine whose last cycle had 6 excerpts on the disk; from
    where on they are lost, and what is said of it."""
    fill(path, "FAST_DAILY", {0: 5, 1: 4})
    store_synced(path, noon_index(ahead=1, sequence=6), boot=bytes(16))
    last = noon_path(path, ahead=1)
    if how == "short":
        return noon_index(ahead=1, sequence=4), "as synced.cqmark says; found 4 of 6"
    if how == "noted":
        Queue.open_for_append(path).close()
        with Queue.open(path) as queue:
            queue.cycles.closed.remember(ClosedCycle(queue.cycles.listing()[-1], 4, bytes(16)))
            queue.cycles.closed.note_below(Cycle(queue.cycles.listing()[-1] + 1))
    if how == "empty":
        last.write_bytes(b"")
        return noon_index(ahead=1), "found 0 bytes without a header"
    last.unlink()
    return noon_index(ahead=1), "it is not there"


@pytest.mark.parametrize("how", ["short", "gone", "noted", "empty"])
def test_an_end_that_is_gone_is_let_go(invoke: Invoke, tmp_path: Path, how: str) -> None:
    path = tmp_path / "q"
    start, said = lost_end(path, how)
    left = read(path)
    result = invoke("repair", path, "--accept-missing")
    assert result.exit_code == 0
    assert f"from {hex(start)} on: expected" in result.stdout
    assert said in result.stdout
    assert "the end to be accepted as it is, nothing was changed" in result.stdout
    told = invoke("verify", path)
    assert told.exit_code == 4
    assert "cqrepl repair QUEUE --accept-missing --apply" in told.stdout
    result = invoke("repair", path, "--accept-missing", "--apply", "--json")
    assert result.exit_code == 0, result.output
    fields = json.loads(result.stdout)
    assert (fields["kind"], fields["index_first"]) == ("accept-end", hex(start))
    assert invoke("verify", path).exit_code == 0
    again = invoke("repair", path, "--accept-missing", "--apply")
    assert "holds what it held" in again.stdout
    mark = load_synced(path)
    assert mark is not None
    assert (mark.end, mark.boot) == (left[-1][0] + 1, bytes(16)), "no more than that is proved"
    with Queue.open(path) as queue:
        queue.append(b"goes on")
    assert read(path)[: len(left)] == left
    assert len(read(path)) == len(left) + 1


def test_an_end_and_a_file_in_the_middle(path: Path, invoke: Invoke) -> None:
    store_synced(path, noon_index(ahead=2, sequence=9))
    result = invoke("repair", path, "--accept-missing", "--apply")
    assert result.exit_code == 0, result.output
    assert "1 store file and the end accepted as they are" in result.stdout
    assert invoke("verify", path).exit_code == 0


def test_an_end_of_a_queue_that_has_no_store_file(tmp_path: Path, invoke: Invoke) -> None:
    """An appender that opens it finds it empty, and nothing tells of the file any more."""
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 4})
    noon_path(path).unlink()
    assert invoke("verify", path).exit_code == 4
    result = invoke("repair", path, "--accept-missing", "--apply")
    assert result.exit_code == 0, result.output
    assert f"{noon_path(path).name}, from {hex(noon_index())} on: expected a store" in result.stdout
    assert "the end accepted as it is" in result.stdout
    assert invoke("verify", path).exit_code == 0


def test_an_end_that_somebody_has_open_is_not_let_go(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 4})
    store_synced(path, noon_index(sequence=6))
    mark = load_synced(path)
    with reader_of(path) as pid:
        result = invoke("repair", path, "--accept-missing", "--apply")
        assert result.exit_code == 5
        assert str(pid) in result.stderr
    assert load_synced(path) == mark
    assert invoke("repair", path, "--accept-missing", "--apply").exit_code == 0


@pytest.mark.parametrize("option", ["--accept-missing", "--accept-unproved"])
def test_what_does_not_go_together(path: Path, invoke: Invoke, option: str) -> None:
    result = invoke("repair", path, option, "--reseed")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr
    result = invoke("repair", path, option, "--apply", "--backup", path / "b")
    assert result.exit_code == 2
    assert f"does not go with {option}" in result.stderr
