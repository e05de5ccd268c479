"""Golden queues, read and written through Spark: Java verifies the copies."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.goldens import (
    NAMES,
    assert_java_finds,
    assert_made_like,
    excerpts_of,
    manifest,
    unpack,
)
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "weekly"])
def test_java_verifies_what_spark_wrote(
    spark: "SparkSession", java: JavaQueue, tmp_path: Path, name: str
) -> None:
    golden = manifest(name)
    path, copy = unpack(name, tmp_path), tmp_path / "copy"
    frame = spark.read.format("chronicle").load(str(path))
    writing = frame.write.format("chronicle").option("like", str(path)).mode("append")
    writing.save(str(copy))
    assert_made_like(copy, golden)
    assert_java_finds(java, copy, excerpts_of(golden), block_size=golden["blockSize"])
