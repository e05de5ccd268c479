"""Spark reads the same of a queue that Java wrote as Java itself."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]


def test_excerpts_without_bytes_are_what_java_reads(
    spark: SparkSession, java: JavaQueue, tmp_path: Path
) -> None:
    """Java lays the byte 8F for one, and gives it to its own readers."""
    path = tmp_path / "q"
    assert java.call("append", path, "FAST_DAILY", 200, "0-3", 5).exit == 0
    *lines, _ = java.call("dump", path).lines
    wanted = [bytes.fromhex(str(line["payload"])) for line in lines]
    assert wanted.count(b"\x8f") > 20

    def column(form: str) -> list[Any]:
        reading = spark.read.format("chronicle").option("payload", form)
        frame = reading.option("columns", "index,length,payload").load(str(path))
        return [(row["length"], row["payload"]) for row in frame.orderBy("index").collect()]

    assert [bytes(payload) for _, payload in column("raw")] == wanted
    assert [length for length, _ in column("raw")] == [len(each) for each in wanted]
    texts = [text for _, text in column("text")]
    assert {text for text, raw in zip(texts, wanted, strict=True) if raw == b"\x8f"} == {""}
