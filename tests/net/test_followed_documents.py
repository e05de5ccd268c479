"""Documents of a queue in a task of asyncio: those that are there, then those to come."""

import asyncio
from pathlib import Path

import pytest

import cqrepl.aio
import wire
from cqrepl.queue import Queue
from tests.unit.queue.test_typed_documents import Cancel, Placed


def test_documents_that_are_there_then_those_to_come(tmp_path: Path) -> None:
    async def read(queue: Queue) -> list[object]:
        told: list[wire.FieldError] = []
        documents = cqrepl.aio.documents(queue.tailer(), Placed, Cancel, on_misfit=told.append)
        found: list[object] = [await anext(documents)]
        queue.append_documents([{"order": {"px": 1}}, Cancel("A")])
        found.append(await anext(documents))
        assert (documents.misfits, documents.passed, len(told)) == (1, 0, 1)
        assert documents.index == queue.last_index()
        return found

    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_document(Placed("A", 1.5))
        assert asyncio.run(asyncio.wait_for(read(queue), 60)) == [Placed("A", 1.5), Cancel("A")]


def test_it_is_for_a_task_of_asyncio(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        documents = cqrepl.aio.documents(queue.tailer(), Placed)
        with pytest.raises(RuntimeError, match="for a task of asyncio"):
            aiter(documents)
