"""A pipeline compares, archives and makes tables of queues, again and again, and stops at nothing
that is right."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import wire
from cqrepl.queue import Queue, QueueLocked
from cqrepl.spark import pipeline
from cqrepl.spark.pipeline import Row, latest_rows, run_pipeline
from cqrepl.spark.pipelinefile import PipelinePlan, read_pipeline
from cqrepl.spark.staging import Target, exclusive_appender, target_layout
from tests.spark.queues import FIRST, excerpts, make_queue


@pytest.fixture
def plan(tmp_path: Path) -> PipelinePlan:
    for name, counts in (("eu", [30, 20, 5]), ("us", [10, 15])):
        path = make_queue(tmp_path / "queues" / name, counts)
        shutil.copytree(path, tmp_path / "copies" / name)
    file = tmp_path / "pipeline.yaml"
    section = {
        "state": str(tmp_path / "state"),
        "queues": {
            str(tmp_path / "queues" / "*"): {
                "copies": [str(tmp_path / "copies" / "{name}")],
                "archive": str(tmp_path / "archive" / "{name}"),
                "release": True,
            }
        },
        "tables": {
            "lengths": {
                "sql": "select queue, index, length(payload) as bytes from queues",
                "to": "parquet",
                "path": str(tmp_path / "lengths"),
            },
            "seen": {
                "sql": "select concat(queue, ' ', index) as payload from queues",
                "to": "queue",
                "path": str(tmp_path / "seen"),
                "rollCycle": "FAST_DAILY",
            },
        },
    }
    (tmp_path / "archive").mkdir()
    file.write_text(json.dumps({"pipeline": section}))
    return read_pipeline(file)


def seen_in(tmp_path: Path) -> list[str]:
    return sorted(payload.decode() for _, payload in excerpts(tmp_path / "seen"))


def wanted_in(tmp_path: Path) -> list[str]:
    return sorted(
        f"{name} {index}"
        for name in ("eu", "us")
        for index, _ in excerpts(tmp_path / "queues" / name)
    )


def by_step(rows: tuple[Row, ...]) -> dict[tuple[str, str], Row]:
    return {(row["name"], row["step"]): row for row in rows}


def test_a_pipeline_does_each_thing_once(
    spark: SparkSession, tmp_path: Path, plan: PipelinePlan
) -> None:
    run = run_pipeline(spark, plan)
    assert run.faults == ()
    rows = by_step(run.rows)
    assert rows["eu", "audit"]["excerpts"] == 50
    assert (rows["eu", "archive"]["cycles"], rows["eu", "archive"]["new"]) == (2, 2)
    assert rows["eu", "lag"]["open"] == 5
    assert rows["lengths", "table"]["rows"] == rows["seen", "table"]["rows"] == 80
    assert seen_in(tmp_path) == wanted_in(tmp_path)
    for root in ("queues", "copies"):
        make_queue(tmp_path / root / "eu", [0, 0, 0, 7], start=100)
    run = run_pipeline(spark, plan)
    assert run.faults == ()
    rows = by_step(run.rows)
    assert rows["eu", "audit"]["excerpts"] == 5  # the cycle that has closed since, alone
    assert rows["eu", "archive"]["new"] == 1
    assert rows["us", "audit"]["excerpts"] == 0
    assert rows["seen", "table"]["rows"] == 7
    assert seen_in(tmp_path) == wanted_in(tmp_path)
    assert spark.read.parquet(str(tmp_path / "lengths")).count() == 87
    kept = latest_rows(plan.state)
    assert kept[str(tmp_path / "queues" / "eu"), "archive"]["cycles"] == 3
    frame = spark.read.format("chronicle").option("payload", "text").load(str(plan.state))
    assert frame.count() == 2 * (2 * 3 + 2)


def test_fields_of_documents_are_columns_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("eu", "us"):
        bodies = [wire.encode({"sym": name, "qty": number}) for number in range(30)]
        bodies[7] = b"\xffno document"
        with Queue.open(tmp_path / "queues" / name, create="FAST_DAILY") as queue:
            queue.append_many(bodies)
    schema = {"sym": {"type": "string"}, "qty": {"type": "integer"}}
    (tmp_path / "order.json").write_text(json.dumps({"properties": schema, "required": ["qty"]}))
    file = tmp_path / "pipeline.yaml"
    queues = {str(tmp_path / "queues" / "*"): {"schema": str(tmp_path / "order.json")}}
    sql = "select queue, sym, qty, _misfit from typed"
    tables = {"orders": {"sql": sql, "to": "parquet", "path": str(tmp_path / "orders")}}
    state = str(tmp_path / "state")
    file.write_text(json.dumps({"pipeline": {"state": state, "queues": queues, "tables": tables}}))
    for misfits in (2, 0):
        run = run_pipeline(spark, read_pipeline(file))
        assert run.faults == ()
        assert by_step(run.rows)["orders", "table"].get("misfits", 0) == misfits
    rows = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(row.qty for row in rows if row.sym == "eu") == [*range(7), *range(8, 30)]
    assert [bytes(row._misfit) for row in rows if row.qty is None] == [b"\xffno document"] * 2
    (tmp_path / "order.json").unlink()
    (fault,) = run_pipeline(spark, read_pipeline(file)).faults
    assert fault.startswith("table orders: ")
    assert "order.json" in fault


def test_a_copy_that_differs_is_named_and_nothing_of_it_archived(
    spark: SparkSession, tmp_path: Path, plan: PipelinePlan
) -> None:
    shutil.rmtree(tmp_path / "copies" / "eu")
    make_queue(tmp_path / "copies" / "eu", [30, 20, 5], start=1)
    run = run_pipeline(spark, plan)
    (fault,) = run.faults
    assert fault.startswith(f"{tmp_path / 'queues' / 'eu'}: ")
    assert f"{FIRST:#x}" in fault
    assert not (tmp_path / "archive" / "eu").exists()
    assert by_step(run.rows)["us", "archive"]["cycles"] == 1
    shutil.rmtree(tmp_path / "copies" / "eu")
    shutil.copytree(tmp_path / "queues" / "eu", tmp_path / "copies" / "eu")
    assert run_pipeline(spark, plan).faults == ()
    assert latest_rows(plan.state)[str(tmp_path / "queues" / "eu"), "archive"]["cycles"] == 2


def test_a_run_that_was_killed_is_begun_again(
    spark: SparkSession, tmp_path: Path, plan: PipelinePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    steps: Callable[..., Row] = pipeline._table
    count = 0

    def table(*given: object) -> Row:
        nonlocal count
        count += 1
        if count == 2:
            raise Killed
        return steps(*given)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_table", table)
        with pytest.raises(Killed):
            run_pipeline(spark, plan)
    assert run_pipeline(spark, plan).faults == ()
    assert seen_in(tmp_path) == wanted_in(tmp_path)
    assert spark.read.parquet(str(tmp_path / "lengths")).count() == 80


def test_two_runs_at_once_and_a_statement_that_is_wrong_are_told(
    spark: SparkSession, tmp_path: Path, plan: PipelinePlan
) -> None:
    target = Target(path=plan.state, layout=target_layout(plan.state, "FAST_DAILY", None))
    with exclusive_appender(target), pytest.raises(QueueLocked, match=str(plan.state)):
        run_pipeline(spark, plan)
    file = tmp_path / "pipeline.yaml"
    file.write_text(file.read_text().replace("length(payload)", "width(payload)"))
    run = run_pipeline(spark, read_pipeline(file))
    (fault,) = run.faults
    assert "table lengths" in fault
    assert "width" in fault
    assert "\n" not in fault
    with Queue.open(tmp_path / "seen") as queue:
        assert queue.first_index() is not None
