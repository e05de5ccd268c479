"""The native codec, native/document."""

from collections.abc import Callable
from typing import final

__all__ = [
    "INTERFACE",
    "ColumnBatch",
    "MessageReader",
    "MessageWriter",
    "ObjectReader",
    "document_text",
    "excerpt_text",
    "render_items",
]

INTERFACE: int

@final
class ObjectReader:
    def __new__(
        cls,
        time: Callable[[int, str], object],
        uuid: Callable[[int], object],
        typed: Callable[[str, object], object],
        type_literal: Callable[[str], object],
        is_shown: bool,
    ) -> ObjectReader: ...
    def read(self, data: bytes | bytearray | memoryview) -> object: ...

@final
class MessageReader:
    def __new__(
        cls, message: object, event: bytes | None, objects: ObjectReader
    ) -> MessageReader: ...
    def read(self, data: bytes | bytearray | memoryview) -> object: ...

@final
class MessageWriter:
    def __new__(cls, message: object, event: bytes | None) -> MessageWriter: ...
    def write(self, message: object) -> object: ...

@final
class ColumnBatch:
    def __new__(
        cls, message: object, event: bytes | None, is_wanted: list[bool]
    ) -> ColumnBatch: ...
    def read(
        self, payload: bytes, offsets: bytes, row: int, end: int
    ) -> tuple[int, list[tuple[int, int, bytes | None, tuple[object, ...]]]]: ...

def render_items(
    data: bytes | bytearray | memoryview, folds_unused: bool, is_typed: bool
) -> object: ...
def excerpt_text(data: bytes | bytearray | memoryview, form: str) -> object: ...
def document_text(data: bytes | bytearray | memoryview, form: str) -> object: ...
