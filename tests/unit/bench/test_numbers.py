"""Numbers made of measured values: percentiles, medians, the words and numbers of tables."""

import os

import pytest

from cqrepl.bench.machine import facts_text, machine_facts
from cqrepl.bench.percentiles import SHOWN, percentile, percentile_name
from cqrepl.bench.report import heading, number, table
from cqrepl.bench.sample import Sample, summaries
from cqrepl.console.units import format_size, parse_short_time_ns
from cqrepl.kernel import choose


def test_percentile_is_the_nearest_rank() -> None:
    ordered = list(range(1, 1001))
    found = [percentile(ordered, each) for each in SHOWN]
    assert found == [500, 900, 990, 999, 1000, 1000]
    assert percentile(ordered, 0) == 1
    assert [percentile([7], each) for each in SHOWN] == [7] * len(SHOWN)


def test_a_percentile_is_never_below_its_share() -> None:
    for count in (1, 2, 3, 7, 10, 99, 1001):
        ordered = list(range(count))
        for percent in (*range(101), 99.9, 99.99):
            value = percentile(ordered, percent)
            reached = sum(each <= value for each in ordered)
            assert reached >= percent / 100 * count - 1e-6
            assert value == 0 or sum(each < value for each in ordered) < percent / 100 * count


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="at least one value expected"):
        percentile([], 50)


def test_names_of_percentiles() -> None:
    assert [percentile_name(each) for each in SHOWN] == [
        "p50", "p90", "p99", "p99.9", "p99.99", "max",
    ]  # fmt: skip


def test_facts_name_what_decides_speed() -> None:
    facts = machine_facts()
    assert facts["kernel"] == choose.NAME
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert all(facts.values())
    assert str(facts["processor"]) in facts_text(facts)


def test_summaries_keep_cases_apart_and_take_medians() -> None:
    samples = [
        Sample(case=case, size=size, values={"ns": value})
        for case, size, value in (("a", 1, 3.0), ("b", 1, 9.0), ("a", 1, 1.0), ("a", 2, 5.0))
    ]
    samples.append(Sample(case="a", size=1, values={"ns": 100.0}))
    found = summaries(samples)
    assert [(each.case, each.size) for each in found] == [("a", 1), ("b", 1), ("a", 2)]
    assert (found[0].medians, found[0].least, found[0].greatest) == (
        {"ns": 3.0}, {"ns": 1.0}, {"ns": 100.0},
    )  # fmt: skip


def test_tables_are_aligned() -> None:
    assert table([["size", "case", "n"], ["64 B", "x", "1,000"]]) == (
        "size  case      n\n64 B  x     1,000\n"
    )
    assert [number(each) for each in (0.0, 0.01234, 12.345, 999.6, 1234.5)] == [
        "0", "0.0123", "12.3", "1,000", "1,234",
    ]  # fmt: skip
    assert heading("excerpts_per_s") == "excerpts/s"
    assert heading("source_cpu_s_per_gib") == "source cpu s/GiB"


def test_sizes_and_short_times() -> None:
    assert [format_size(each) for each in (0, 64, 1024, 1536, 16 << 20, 1 << 30)] == [
        "0 B", "64 B", "1 KiB", "1536 B", "16 MiB", "1 GiB",
    ]  # fmt: skip
    assert [parse_short_time_ns(each) for each in ("500us", "2ms", "0.5ms", "1s")] == [
        500_000, 2_000_000, 500_000, 1_000_000_000,
    ]  # fmt: skip
    for text in ("5", "1m", "-1ms", "1e3us", ""):
        with pytest.raises(ValueError, match="a time such as 500us"):
            parse_short_time_ns(text)
