"""One excerpt, as a tailer gives them one by one.

    index   where it stands in the queue
    data    its bytes: a view of the mapped file, valid until the next read from that tailer

A view of a file that is being written costs nothing and promises little: a caller that keeps one
longer than until the next read takes `bytes(excerpt)`.
"""


class Excerpt:
    """An index and the bytes that stand under it. `bytes(excerpt)` copies, `len` counts them."""

    __slots__ = ("data", "index")

    def __init__(self, index: int, data: memoryview) -> None:
        self.index = index
        self.data = data

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True  # one without bytes is one nevertheless

    def __repr__(self) -> str:
        return f"Excerpt({self.index:#x}, {len(self.data)} bytes)"
