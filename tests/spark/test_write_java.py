"""Golden queues, read and written through Spark: Java verifies the copies."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.goldens import LOST_END, READABLE, manifest, unpack
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javachecks import assert_java_finds
from tests.support.samples import assert_made_like

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]


@pytest.mark.parametrize("name", [name for name in READABLE if name != LOST_END])
def test_java_verifies_what_spark_wrote(
    spark: SparkSession, java: JavaQueue, tmp_path: Path, name: str
) -> None:
    golden = manifest(name)
    path, copy = unpack(name, tmp_path), tmp_path / "copy"
    frame = spark.read.format("chronicle").load(str(path))
    writing = frame.write.format("chronicle").option("like", str(path)).mode("append")
    writing.save(str(copy))
    assert_made_like(copy, golden)
    assert_java_finds(java, copy, golden.dumped(), block_size=golden.block_size)
