"""Roll cycles against the table and the samples that Java computed, and their own laws."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import ROLL_CYCLES, RollCycle
from cqrepl.queue.format import rollcycle

VECTORS = json.loads(
    (Path(__file__).resolve().parents[1] / "vectors" / "queues" / "rollcycles.json").read_text()
)
SUPPORTED = [entry for entry in VECTORS if entry["name"] != "WEEKLY"]
roll_cycles = st.sampled_from(ROLL_CYCLES)
moments = st.integers(0, 2_147_000_000_000)  # cycles of a second have 31 bits
epochs = st.one_of(
    st.integers(0, 1_700_000_000_000), st.integers(-86_399_999, -1), st.just(-86_400_000)
)


@pytest.mark.parametrize("entry", SUPPORTED, ids=lambda entry: str(entry["name"]))
def test_numbers_and_samples_are_those_of_java(entry: dict[str, Any]) -> None:
    roll_cycle = rollcycle.by_name(entry["name"])
    assert rollcycle.by_format(entry["format"]) is roll_cycle
    assert roll_cycle.length_ms == entry["lengthMs"]
    assert roll_cycle.default_epoch == entry["defaultEpoch"]
    assert (roll_cycle.index_count, roll_cycle.index_spacing) == (
        entry["indexCount"],
        entry["indexSpacing"],
    )
    assert roll_cycle.shift == entry["cycleShift"]
    assert roll_cycle.max_excerpts == entry["maxMessages"]
    for sample in entry["samples"]:
        cycle = roll_cycle.cycle_at(sample["ms"], sample["epoch"])
        name = roll_cycle.file_name(cycle, sample["epoch"])
        assert cycle == sample["cycle"]
        assert f"{name}.cq4" == sample["file"]
        assert roll_cycle.cycle_of_name(name, sample["epoch"]) == sample["parsedCycle"]
        assert cycle << roll_cycle.shift == int(sample["index0"], 16)


def test_there_are_all_of_them() -> None:
    assert {entry["name"] for entry in SUPPORTED} == {cycle.name for cycle in ROLL_CYCLES}


def test_weekly_is_refused_by_name_by_format_and_by_file_name() -> None:
    for look_up, text in (
        (rollcycle.by_name, "WEEKLY"),
        (rollcycle.by_format, "YYYY'W'ww"),
        (rollcycle.by_file_name, "2024W03"),
    ):
        with pytest.raises(ValueError, match="WEEKLY is not supported"):
            look_up(text)


@pytest.mark.parametrize(
    ("look_up", "text"),
    [
        (rollcycle.by_name, "fast_daily"),
        (rollcycle.by_format, "yyyyMMdd'Q'"),
        (rollcycle.by_file_name, "20240305Q"),
    ],
)
def test_what_is_no_roll_cycle_is_refused(look_up: Any, text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        look_up(text)


@given(roll_cycles, moments, epochs)
def test_a_name_leads_back_to_its_cycle(roll_cycle: RollCycle, ms: int, epoch: int) -> None:
    cycle = roll_cycle.cycle_at(ms, epoch)
    if cycle < 0:
        return
    assert roll_cycle.cycle_of_name(roll_cycle.file_name(cycle, epoch), epoch) == cycle


@given(roll_cycles, moments, moments)
def test_names_sort_in_the_order_of_cycles(roll_cycle: RollCycle, one: int, other: int) -> None:
    cycles = sorted(roll_cycle.cycle_at(ms, 0) for ms in (one, other))
    names = [roll_cycle.file_name(cycle, 0) for cycle in cycles]
    assert names == sorted(names)


@given(roll_cycles, moments)
def test_a_file_name_tells_its_roll_cycle(roll_cycle: RollCycle, ms: int) -> None:
    name = roll_cycle.file_name(roll_cycle.cycle_at(ms, 0), 0)
    assert rollcycle.by_file_name(name) is roll_cycle


@pytest.mark.parametrize("name", ["", "20240230F", "20240305", "20240305F.cq4", "00000305F", "x"])
def test_a_name_of_no_cycle_is_none(name: str) -> None:
    assert rollcycle.by_name("FAST_DAILY").cycle_of_name(name, 0) is None


def test_a_name_between_two_cycles_is_none() -> None:
    assert rollcycle.by_name("TEN_MINUTELY").cycle_of_name("20240305-1011X", 0) is None


@pytest.mark.parametrize("cycle", [-1, 1 << 31, 3_000_000])
def test_a_cycle_without_a_name_is_refused(cycle: int) -> None:
    with pytest.raises(ValueError, match="before the year 10000"):
        rollcycle.by_name("FAST_DAILY").file_name(cycle, 0)


def test_cycles_before_the_epoch_round_towards_zero() -> None:
    assert rollcycle.by_name("FAST_DAILY").cycle_at(0, 1) == 0
    assert rollcycle.by_name("FAST_DAILY").cycle_at(0, 86_400_000) == -1
