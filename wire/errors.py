"""The errors that bytes can cause: one, and its form for a field that does not fit a schema."""

from typing import Self


class WireError(Exception):
    """Bytes that are not what the format allows.

    Args:
        reason: what was expected and what came, in one sentence without a final stop.
        position: byte offset in the buffer that was read, where one is known.
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} at position {position}")
        self.reason = reason
        self.position = position


class FieldError(WireError):
    """A field of a document that does not fit the class that it is read into.

    Args:
        path: names and places that lead to the field, as `legs[1].px`; empty for the document.
        expected: the type that the class has there.
        found: the value that the document has there, as text, at most 40 characters of it.
        reason: why it does not fit, in one sentence.
        position: byte offset in the document, where one is known.
        index: of the excerpt, where the document is one.
    """

    def __init__(
        self,
        path: str,
        expected: str,
        found: str,
        reason: str,
        position: int | None = None,
        index: int | None = None,
    ) -> None:
        where = f"field {path}" if path else "document"
        excerpt = "" if index is None else f"excerpt 0x{index:x}: "
        text = f"{excerpt}{where}: expected {expected}, got {found} ({reason})"
        super().__init__(text, position)
        self.path = path
        self.expected = expected
        self.found = found
        self.why = reason
        self.index = index

    def within(self, outer: str) -> Self:
        """The same error, seen from the value that holds this one under a name or a place."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return type(self)(
            f"{outer}{joint}{self.path}", self.expected, self.found, self.why, self.position
        )

    def at(self, index: int) -> Self:
        """The same error, of the document that is the excerpt at this index."""
        return type(self)(self.path, self.expected, self.found, self.why, self.position, index)
