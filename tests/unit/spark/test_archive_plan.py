"""The cycles that a run archives, and those that it compares first; a second run is kept out."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueLayout, QueueLocked
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.jobs.archivefiles import (
    ArchivedCycle,
    ArchivePart,
    Manifest,
    part_name,
    read_manifest,
    write_manifest,
)
from cqrepl.spark.jobs.archivelock import LOCK, locked_archive
from cqrepl.spark.jobs.archiveplace import place_of
from cqrepl.spark.jobs.archiveplan import (
    ArchiveDiffers,
    ArchivePlan,
    left_out,
    plan_archive,
    taken_over,
)
from cqrepl.spark.jobs.blocks import block_spans, digest_of, read_pieces
from tests.support.samples import fill, flip_byte, noon_index, noon_path, payloads

ROLL = "FAST_HOURLY"
COUNTS = {0: 5, 1: 300, 2: 70}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", ROLL, COUNTS)
    return tmp_path / "q"


def digests(path: Path, first: int, last: int) -> tuple[str, ...]:
    with Queue.open(path) as queue:
        return tuple(digest_of(a, read_pieces(queue, a, b)) for a, b in block_spans(first, last))


def archived(path: Path, *, with_open: bool = True) -> dict[int, ArchivedCycle]:
    """The cycles as a run would have archived them."""
    found: dict[int, ArchivedCycle] = {}
    with Queue.open(path) as queue:
        new = plan_archive(queue, {}, with_open=with_open).new
    for each in new:
        first, last = each.held.index_first, each.held.index_last
        part = ArchivePart(
            path="part", index_first=first, index_last=last, payload_bytes=1,
            blocks=digests(path, first, last),
        )  # fmt: skip
        found[each.cycle] = ArchivedCycle(
            cycle=each.cycle, day="2024-03-05", file="f", is_closed=each.is_closed, parts=(part,),
            state=each.state,
        )  # fmt: skip
    return found


def planned(path: Path, held: dict[int, ArchivedCycle], *, with_open: bool = True) -> ArchivePlan:
    with Queue.open(path) as queue:
        return plan_archive(queue, held, with_open=with_open)


def judged(path: Path, plan: ArchivePlan) -> list[ArchivedCycle]:
    there = {
        part.index_first: digest
        for _, each in plan.compared
        for part in each.parts
        for digest in digests(path, part.index_first, part.index_last)
    }
    return list(plan.judge(there))


def refused(path: Path, plan: ArchivePlan) -> str:
    with Queue.open(path) as queue, pytest.raises(ArchiveDiffers) as raised:
        plan.check(queue)
    return str(raised.value)


def test_what_is_there_already_costs_no_reading(path: Path) -> None:
    plan = planned(path, archived(path))
    assert (plan.new, plan.compared, plan.clashes) == ([], [], {})
    assert len(planned(path, archived(path, with_open=False), with_open=False).compared) == 0


def test_an_open_cycle_is_new_on_demand_only(path: Path) -> None:
    assert len(planned(path, {}, with_open=False).new) == 2
    assert len(planned(path, {}).new) == 3


def test_an_open_cycle_that_has_grown_is_compared_first(path: Path) -> None:
    held = archived(path)
    with Queue.open(path) as queue:
        queue.append_many(payloads(3), now_ms=1_709_640_000_000 + 2 * 3_600_000)
    plan = planned(path, held)
    assert [each.held.count for each in plan.new] == [73]
    assert len(judged(path, plan)) == 1
    flip_byte(noon_path(path, ROLL, ahead=2), payloads(70, seed=3)[11], 2)
    plan = planned(path, held)
    assert judged(path, plan) == []
    assert "expected 70 excerpts of digest " in refused(path, plan)


def test_an_older_file_that_holds_less(path: Path, tmp_path: Path) -> None:
    held = archived(path)
    fill(tmp_path / "older", ROLL, {1: 100, 2: 1})
    older = noon_path(path, ROLL, ahead=1)
    noon_path(tmp_path / "older", ROLL, ahead=1).replace(older)
    plan = planned(path, held)
    text = refused(path, plan)
    assert text.startswith(f"{older}: expected 300 excerpts as archived, found 100 in the queue;")
    assert "--replace" in text
    with Queue.open(path) as queue:
        taken_over(plan, queue)
        plan.check(queue)
    assert [each.held.count for each in plan.new] == [100]


def test_an_open_cycle_that_lost_its_end(path: Path, tmp_path: Path) -> None:
    held = archived(path)
    fill(tmp_path / "older", ROLL, {2: 69})
    older = noon_path(path, ROLL, ahead=2)
    noon_path(tmp_path / "older", ROLL, ahead=2).replace(older)
    assert refused(path, planned(path, held)).startswith(
        f"{older}: expected 70 excerpts as archived, found 69 in the queue;"
    )


def test_a_closed_cycle_that_is_open_again(path: Path, tmp_path: Path) -> None:
    held = archived(path)
    fill(tmp_path / "older", ROLL, {1: 300})
    noon_path(tmp_path / "older", ROLL, ahead=1).replace(noon_path(path, ROLL, ahead=1))
    plan = planned(path, held, with_open=False)
    assert "found 300 in the queue, and it is open;" in refused(path, plan)


def test_other_bytes_of_the_same_count(path: Path) -> None:
    held = archived(path)
    flip_byte(noon_path(path, ROLL, ahead=1), payloads(300, seed=2)[200], 0)
    plan = planned(path, held)
    assert [found.held.count for found, _ in plan.compared] == [300]
    assert judged(path, plan) == []
    text = refused(path, plan)
    assert text.count("digest ") == 2
    assert text.startswith(f"{noon_path(path, ROLL, ahead=1)}: expected 300 excerpts of digest ")


def test_another_file_with_the_same_excerpts(path: Path, tmp_path: Path) -> None:
    """A queue was moved to another disk: it is read once, and its state is kept."""
    held = archived(path)
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    plan = planned(copy, held)
    assert len(plan.compared) == 3
    same = judged(copy, plan)
    assert len(same) == 3
    assert planned(copy, {each.cycle: each for each in same}).compared == []


def test_what_retention_took_stays_in_the_archive(path: Path) -> None:
    held = archived(path)
    noon_path(path, ROLL, ahead=0).unlink()
    plan = planned(path, held)
    assert (plan.new, plan.clashes) == ([], {})


def test_a_cycle_that_nobody_has_closed_is_left_out_where_more_of_it_is_there(
    path: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "unclosed", ROLL, {1: 300})
    noon_path(tmp_path / "unclosed", ROLL, ahead=1).replace(noon_path(path, ROLL, ahead=1))
    held = archived(path)
    (cycle,) = (each.cycle for each in held.values() if each.count == 300)

    def left(*, with_open: bool = False) -> list[tuple[int, int]]:
        with Queue.open(path) as queue:
            return [*left_out(queue, held.values(), with_open=with_open)]

    assert left() == []  # as open, but all of it
    held[cycle] = replace(
        held[cycle],
        parts=(replace(held[cycle].parts[0], index_last=noon_index(ROLL, ahead=1, sequence=99)),),
    )
    assert left() == [(cycle, 100)]
    assert left(with_open=True) == []
    del held[cycle]
    assert left() == [(cycle, 0)]


def test_manifests_keep_states_and_older_ones_are_read(path: Path, tmp_path: Path) -> None:
    cycles = tuple(archived(path).values())
    cycles = (*cycles[:-1], replace(cycles[-1], state=None))
    manifest = Manifest(layout=QueueLayout.of(by_name(ROLL)), cycles=cycles)
    place = place_of(tmp_path)
    write_manifest(place, manifest, None)
    assert read_manifest(place) == manifest
    file = tmp_path / "_manifest.json"
    text = file.read_text().replace('"v": 2', '"v": 1')
    file.write_text(text)
    assert read_manifest(place) == manifest


def test_names_of_parts_differ_with_what_they_hold(path: Path) -> None:
    first, last = noon_index(ROLL), noon_index(ROLL, sequence=4)
    name = part_name(first, last, digests(path, first, last))
    assert name.startswith(f"part-{first:016x}-5-")
    assert name != part_name(first, last - 1, digests(path, first, last - 1))


def test_another_run_is_kept_out_and_told_of_the_first(tmp_path: Path) -> None:
    with locked_archive(tmp_path):
        text = f"found one of process {os.getpid()} on "
        with pytest.raises(QueueLocked, match=text) as raised, locked_archive(tmp_path):
            pass
        assert raised.value.holder == os.getpid()
    with locked_archive(tmp_path):
        assert (tmp_path / LOCK).read_text().startswith(f"{os.getpid()} ")
