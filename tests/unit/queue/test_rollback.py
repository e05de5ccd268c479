"""An excerpt that is put together in parts: kept whole, or not at all."""

from pathlib import Path

import pytest

from cqrepl.queue import Appender, ExcerptTooLarge, Queue
from cqrepl.queue.write.draft import Draft
from tests.support.samples import NOON_MS, check_marks, layout, noon_index, noon_path, read


def test_parts_become_one_excerpt(path: Path) -> None:
    with Queue.open(path, create=layout()) as queue:
        appender = queue.appender()
        with appender.writing(NOON_MS) as out:
            out.write(b"one ")
            out.write(bytearray(b"two "))
            out.write(memoryview(b"three"))
            assert len(out) == 13
            assert read(path) == []
        assert out.index == noon_index()
        with appender.writing(NOON_MS) as out:
            pass
        assert out.index == noon_index(sequence=1)
    assert read(path) == [(noon_index(), b"one two three"), (noon_index(sequence=1), b"\x8f")]
    check_marks(path)


def test_what_is_rolled_back_was_never_there(path: Path) -> None:
    with Queue.open(path, create=layout()) as queue:
        appender = queue.appender()
        appender.append([b"a"], NOON_MS)
        before = noon_path(path).read_bytes()
        with appender.writing(NOON_MS) as out:
            out.write(b"no")
            out.rollback()
            out.write(b"neither")
        assert out.is_rolled_back
        assert out.index is None
        with pytest.raises(KeyError):
            _fail_in(appender)
        assert noon_path(path).read_bytes() == before
        assert appender.append_one(b"b", NOON_MS) == noon_index(sequence=1)
    assert [data for _, data in read(path)] == [b"a", b"b"]


def _fail_in(appender: Appender) -> None:
    with appender.writing(NOON_MS) as out:
        out.write(b"no")
        raise KeyError


def test_another_may_append_meanwhile(path: Path) -> None:
    with Queue.open(path, create=layout()) as queue, Queue.open(path) as other:
        with queue.appender().writing(NOON_MS) as out:
            out.write(b"second")
            other.append(b"first", now_ms=NOON_MS)
        assert out.index == noon_index(sequence=1)
    assert [data for _, data in read(path)] == [b"first", b"second"]


def test_a_draft_has_a_limit(path: Path) -> None:
    with Queue.open(path, create=layout(), block_bytes=256 << 10) as queue:
        appender = queue.appender()
        with appender.writing(NOON_MS) as out:
            out.write(bytes(60_000))
            with pytest.raises(ExcerptTooLarge, match="has 65537 bytes, expected at most 65536"):
                out.write(bytes(5_537))
            out.write(bytes(5_536))
        assert len(out) == 65_536
    assert [len(data) for _, data in read(path)] == [65_536]


def test_a_draft_that_cannot_be_appended_has_no_index() -> None:
    draft = Draft(0, 10)

    def refuse(payload: bytes) -> int:
        raise OSError

    with pytest.raises(OSError):
        draft.append_with(refuse)
    assert draft.index is None
