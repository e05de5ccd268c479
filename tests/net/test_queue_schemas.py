"""Schemas that a host's file names, kept in the directories of its queues."""

import json
import logging
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.service.queueschemas import QueueSchemas
from tests.support.replicas import eventually

ORDERS = json.dumps({"title": "Order", "type": "object", "properties": {"px": {"type": "number"}}})
OTHERS = json.dumps({"title": "Other", "type": "object", "properties": {}})
BRISK_S = 0.01


def read(path: Path) -> str:
    file = path / "schema.json"
    return file.read_text() if file.exists() else ""


async def test_each_queue_has_its_schema_once_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = {name: tmp_path / name for name in ("orders", "trades", "later")}
    schemas = QueueSchemas({"*": OTHERS, "orders": ORDERS}, lambda: paths, look_seconds=BRISK_S)
    for name in ("orders", "trades"):
        Queue.open(paths[name], create="FAST_DAILY").close()
    (paths["trades"] / "schema.json").write_text("what was there before")
    with caplog.at_level(logging.INFO, "cqrepl"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(schemas.run)
            await eventually(lambda: read(paths["orders"]) == ORDERS)
            await eventually(lambda: read(paths["trades"]) == OTHERS)
            assert not paths["later"].exists()
            Queue.open(paths["later"], create="FAST_DAILY").close()
            await eventually(lambda: read(paths["later"]) == OTHERS)
            nursery.cancel_scope.cancel()
    said = [each.message for each in caplog.records if "schema" in each.message]
    assert len(said) == 3
    assert said[0] == f"queue 'orders': its schema is kept in {paths['orders'] / 'schema.json'}"
    assert not list(tmp_path.glob("*/.schema*"))


async def test_a_schema_that_cannot_be_kept_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = {"q": tmp_path / "q"}
    Queue.open(paths["q"], create="FAST_DAILY").close()
    (tmp_path / "q" / "schema.json").mkdir()  # no file can take its place
    with caplog.at_level(logging.INFO, "cqrepl"):
        schemas = QueueSchemas({"q": ORDERS}, lambda: paths, look_seconds=BRISK_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(schemas.run)
            await eventually(lambda: bool(caplog.records))
            await trio.sleep(5 * BRISK_S)  # and it looks again
            nursery.cancel_scope.cancel()
    (said,) = (each.message for each in caplog.records)
    assert said.startswith("queue 'q': its schema cannot be kept: ")


async def test_without_a_schema_it_does_not_run() -> None:
    await QueueSchemas({}, dict).run()
