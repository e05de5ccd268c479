"""The bytes of a new store file, as Java 5.27 lays them, and of a further index page.

    0      meta-data  "header": !SCQStore {writePosition, indexing: !SCQSIndexing {..}, dataFormat}
    then   meta-data  "index2index": array of index_count longs, positions of the index pages
    then   meta-data  "index": array of index_count longs, positions of excerpts
    then   8 zero bytes: no excerpt yet

Source: the first bytes of the files in `tests/vectors/queues`, which these equal.
"""

import struct
from typing import Final

from wire.header import HEADER_BYTES, align4
from wire.writer import Writer

DATA_FORMAT: Final = 1  # headers on multiples of 4
ARRAY_HEAD_BYTES: Final = 16  # capacity, used
_LONG: Final = struct.Struct("<q")
_LINE_BYTES: Final = 64
TAIL_ZEROS: Final = bytes(8)


def store_image(index_count: int, index_spacing: int) -> bytes:
    """A whole new store file up to its first excerpt."""
    writer = Writer()
    with writer.document(metadata=True):
        pages_word = _write_header(writer, index_count, index_spacing)
        if len(writer.data) % _LINE_BYTES > _LINE_BYTES - HEADER_BYTES:
            # the next header word would straddle two cache lines
            writer.padding(-len(writer.data) % _LINE_BYTES)
    image = _aligned(writer)
    pages_position = len(image)
    pages, pages_array = page_image("index2index", pages_position, index_count)
    image += pages
    page_position = len(image)
    page, _ = page_image("index", page_position, index_count)
    image += page
    _LONG.pack_into(image, pages_word, pages_position)
    _LONG.pack_into(image, pages_array + _LONG.size, 1)
    _LONG.pack_into(image, pages_array + ARRAY_HEAD_BYTES, page_position)
    return bytes(image) + TAIL_ZEROS


def page_image(name: str, position: int, index_count: int) -> tuple[bytearray, int]:
    """The document of an index page for this header position, and where its array starts."""
    writer = Writer(origin=position)
    with writer.document(metadata=True):
        writer.event(name)
        array = writer.int64_array(index_count)
    return _aligned(writer), array


def page_size(index_count: int) -> int:
    """Upper bound of the bytes of an index page, with the zeros behind it."""
    return len(page_image("index", 0, index_count)[0]) + len(TAIL_ZEROS) + _LONG.size


def _write_header(writer: Writer, index_count: int, index_spacing: int) -> int:
    """The store header's body; answers where the position of the index2index page goes."""
    writer.event("header")
    writer.type_prefix("SCQStore")
    with writer.block():
        writer.name("writePosition")
        writer.bound_int128(0, 0)
        writer.name("indexing")
        writer.type_prefix("SCQSIndexing")
        with writer.block():
            writer.name("indexCount")
            writer.integer(index_count)
            writer.name("indexSpacing")
            writer.integer(index_spacing)
            writer.name("index2Index")
            pages_word = writer.bound_int64(0)
            writer.name("lastIndex")
            writer.bound_int64(0)
        writer.name("dataFormat")
        writer.integer(DATA_FORMAT)
    return pages_word


def _aligned(writer: Writer) -> bytearray:
    """The bytes that were written, filled with zeros up to where the next header may stand."""
    return writer.data + bytes(align4(writer.position) - writer.position)
