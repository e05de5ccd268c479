"""A snapshot at any position and the records behind it make the state that all records make."""

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cqrepl.broker.fields import TaskWords
from cqrepl.broker.service import BoardService, BoardSettings
from cqrepl.broker.taskboard import TaskTable
from cqrepl.queue import ExcerptBatch
from cqrepl.queue.format.logpos import START

FIRST = 100
NUMBERS = st.integers(0, 9)
NOW = st.integers(0, 50).map(lambda each: each * 100)
WORKERS = st.sampled_from(["w1", "w2"])
# most are about tasks that there are: the first ten indexes
TASKS = NUMBERS.map(lambda each: FIRST + each)


def record(name: str, **values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    fields = st.fixed_dictionaries({"now": NOW} | values)
    return fields.map(lambda found: TaskWords(name, found).encoded())


RECORDS = st.lists(
    st.one_of(
        record(
            "submit",
            type=st.sampled_from(["mail", "sms"]),
            key=st.sampled_from(["", "a", "b"]),
            payload=st.binary(max_size=5),
            attempts=st.integers(1, 3),
            backoff=st.just(100),
            deadline=st.sampled_from([0, 0, 2000]),
        ),
        record("join", worker=WORKERS, types=st.just("mail sms"), slots=st.integers(1, 3)),
        record("assign", task=TASKS, worker=WORKERS),
        record("finish", task=TASKS, worker=WORKERS, attempt=st.integers(1, 3)),
        record("fail", task=TASKS, worker=WORKERS, attempt=st.integers(1, 3)),
        record("lost", worker=WORKERS, why=st.just("silent")),
        record("tick", keep=st.just(1000)),
        record("opened", epoch=st.integers(1, 9), leader=st.integers(1, 3)),
    ),
    min_size=1,
    max_size=40,
)


def state(service: BoardService) -> bytes:
    out = io.BytesIO()
    service.snapshot(out)
    return out.getvalue()


def made() -> BoardService:
    return BoardService("jobs", BoardSettings(group="g0"))


def given_all(service: BoardService, records: list[bytes], first: int = 0) -> BoardService:
    for nth, data in enumerate(records[first:], first):
        service.apply(ExcerptBatch.of(FIRST + nth, [data]), committed=-1)
    return service


@given(RECORDS)
def test_a_snapshot_and_the_records_behind_it(records: list[bytes]) -> None:
    whole = state(given_all(made(), records))
    one = made()
    for nth in range(len(records) + 1):
        other = made()
        other.restore(io.BytesIO(state(one)), START)
        assert state(other) == state(one)
        assert state(given_all(other, records, nth)) == whole
        if nth < len(records):
            given_all(one, records[: nth + 1], nth)


@given(RECORDS, st.data())
def test_batches_make_no_difference(records: list[bytes], data: st.DataObject) -> None:
    service, at = made(), 0
    while at < len(records):
        count = data.draw(st.integers(1, len(records) - at))
        service.apply(ExcerptBatch.of(FIRST + at, records[at : at + count]), committed=at)
        at += count
    assert state(service) == state(given_all(made(), records))


@given(RECORDS)
def test_the_books_of_a_board_agree(records: list[bytes]) -> None:
    board: TaskTable = given_all(made(), records).board
    for worker in board.workers.values():
        assert len(worker.running) <= max(worker.slots, 3)
        assert all(board.tasks[each].worker == worker.worker for each in worker.running)
    running = {each for worker in board.workers.values() for each in worker.running}
    assert running == {n for n, each in board.tasks.items() if each.status.value == "running"}
    assert all(board.tasks[task].key == key for key, task in board.keys.items())
    ready = board.ready(["mail", "sms"], 1 << 60, set(), 1000)
    waiting = sorted(n for n, each in board.tasks.items() if each.status.value == "waiting")
    assert sorted(each.task for each in ready) == waiting
