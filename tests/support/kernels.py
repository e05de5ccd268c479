"""The kernels there are, and what it means that two of them agree.

`cqrepl.kernel.batch` picks one for the whole process; a test of the kernel itself takes all in
turn.
"""

from array import array
from enum import Enum, auto
from types import ModuleType
from typing import Any, Final

from cqrepl.kernel import plain
from tests.support.requirements import require

NAMES: Final = ("python", "native")
REFUSALS: Final = (ValueError, OverflowError)


def kernel_named(name: str) -> ModuleType:
    """The kernel; skips the test if there is no native one, which CQREPL_REQUIRE calls `native`."""
    if name == plain.NAME:
        return plain
    native = native_kernel()
    if native is None:
        require("native", "the native kernel is not built")
    return native


def native_kernel() -> ModuleType | None:
    try:
        import cqrepl._native as native
    except ModuleNotFoundError:
        return None
    assert native.INTERFACE == plain.INTERFACE, "the native kernel is old: install again"
    return native


class Own(Enum):
    """Stands for the buffer that a call may write, of which each kernel gets a copy."""

    BYTES = auto()
    VIEW = auto()


def assert_agree(
    native: ModuleType, name: str, *arguments: object, buffer: bytes = b""
) -> tuple[Any, ...]:
    """The two kernels give or refuse the same, and leave the same in the buffer; what they give."""
    expected = _outcome(plain, name, arguments, buffer)
    assert _outcome(native, name, arguments, buffer) == expected
    return expected[0] if isinstance(expected[0], tuple) else (expected[0],)


def _outcome(kernel: ModuleType, name: str, arguments: tuple[object, ...], buffer: bytes) -> Any:
    own = bytearray(buffer)
    stands_for = {Own.BYTES: own, Own.VIEW: memoryview(own)}
    given = [stands_for[each] if isinstance(each, Own) else each for each in arguments]
    try:
        result = getattr(kernel, name)(*given)
    except REFUSALS as error:
        result = type(error)  # not its text: which of several wrong things is named is no matter
    return result, bytes(own)


def columns_of(places: list[tuple[int, int]]) -> tuple["array[int]", "array[int]"]:
    """The arrays of a batch whose excerpts have these offsets and lengths."""
    return array("q", [offset for offset, _ in places]), array("q", [n for _, n in places])
