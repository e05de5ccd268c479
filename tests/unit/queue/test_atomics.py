"""Words that processes share, by every kernel, and by libatomic for the plain one."""

import mmap

import pytest

from cqrepl.queue.files import atomics
from cqrepl.queue.files.atomics import INT64_MAX, INT64_MIN, Words

pytestmark = pytest.mark.usefixtures("each_kernel")


def test_words_hold_what_was_stored_and_exchange_only_what_is_expected() -> None:
    words = Words(memoryview(mmap.mmap(-1, 64)))
    words.store_4(4, 0xFFFFFFFE)
    assert words.load_4(4) == 0xFFFFFFFE
    assert words.load_4(0) == words.load_4(8) == 0
    assert not words.exchange_4(4, 0, 1)
    assert words.exchange_4(4, 0xFFFFFFFE, 1)
    for value in (INT64_MIN, -1, 0, INT64_MAX):
        before = words.load_8(16)
        assert words.exchange_8(16, before, value)
        assert words.load_8(16) == value
        words.store_8(24, value)
        assert words.load_8(24) == value
    assert not words.exchange_8(16, 5, 6)
    words.put_8(40, -7)
    assert words.load_8(40) == -7
    words.raise_8(32, 5)
    words.raise_8(32, 3)
    words.lower_8(32, 4)
    words.lower_8(32, 9)
    assert words.load_8(32) == 4


@pytest.mark.parametrize("position", [-4, 2, 64, 62])
def test_words_outside_or_between_are_our_own_mistake(position: int) -> None:
    words = Words(memoryview(mmap.mmap(-1, 64)))
    with pytest.raises((AssertionError, IndexError)):
        words.load_4(position)
    with pytest.raises(AssertionError):
        words.store_4(position, 1)


def test_words_that_may_not_be_written_are_not() -> None:
    with pytest.raises(AssertionError):
        Words(memoryview(bytes(8))).store_4(0, 1)


def test_a_library_that_lacks_a_function_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomics, "_SONAME", "libc.so.6")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    assert atomics._load() is None
    monkeypatch.setattr(atomics, "_SONAME", "no-such-library.so")
    monkeypatch.setattr("ctypes.util.find_library", lambda name: "libatomic.so.1")
    assert atomics._load() is not None


def test_a_value_is_taken_by_its_lower_64_bits() -> None:
    words = Words(memoryview(bytearray(8)))
    for value in (1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63) - 1):
        words.store_8(0, value)
        assert words.load_8(0) % (1 << 64) == value % (1 << 64)
        assert words.exchange_8(0, value, 0)
    words.store_8(0, INT64_MAX)
    words.add_8(0, 1)
    assert words.load_8(0) == INT64_MIN


def test_words_keep_their_buffer_until_they_are_released() -> None:
    mapped = mmap.mmap(-1, 64)
    view = memoryview(mapped)
    words = Words(view)
    with pytest.raises(BufferError):
        mapped.close()
    words.release()
    words.release()
    view.release()
    mapped.close()
    with pytest.raises((AssertionError, ValueError)):
        words.load_8(0)
    with pytest.raises((AssertionError, ValueError)):
        words.store_8(0, 1)
