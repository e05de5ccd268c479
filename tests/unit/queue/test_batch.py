from hypothesis import given
from hypothesis import strategies as st

from cqrepl.queue import ExcerptBatch

payload_lists = st.lists(st.binary(max_size=20), min_size=1, max_size=10)


@given(payload_lists)
def test_a_batch_holds_its_payloads_under_consecutive_indexes(payloads: list[bytes]) -> None:
    batch = ExcerptBatch.of(100, payloads)
    assert len(batch) == len(payloads)
    assert [(index, bytes(data)) for index, data in batch] == list(enumerate(payloads, 100))
    assert batch.index_last == 99 + len(payloads)
    assert batch.payload_bytes == sum(map(len, payloads))
    assert [bytes(batch.payload(i)) for i in range(len(batch))] == payloads


@given(payload_lists, st.data())
def test_a_part_is_the_same_excerpts(payloads: list[bytes], data: st.DataObject) -> None:
    batch = ExcerptBatch.of(7, payloads)
    start = data.draw(st.integers(0, len(payloads) - 1))
    stop = data.draw(st.integers(start + 1, len(payloads)))
    assert [(i, bytes(d)) for i, d in batch.part(start, stop)] == [
        (i, bytes(d)) for i, d in list(batch)[start:stop]
    ]
    assert batch.part(start, stop).data is batch.data
