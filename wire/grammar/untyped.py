"""The grammar of objects: values of any kind, blocks open, text decoded, dates checked.

What is asked for decides in `wire.grammar.requested`; here the codes alone do, as for a reader that
knows nothing of the document. `wire.grammar` is the entry and lists all parts.

A type name is kept and its value is taken as it is: that a value fits its type is no matter of
the wire. Nor is a greatest depth, though readers have one.
"""

from typing import Final

from construct import Bytes, Construct, GreedyBytes, Int8ul, Int16ul, Int32ul, LazyBound, Prefixed

from wire.codes import Code
from wire.grammar.items import VALUE_OPERANDS, body_of, content_of, value_of
from wire.grammar.parts import LongText, LongTextOrNull, text_in
from wire.grammar.temporal import TIME_OPERANDS


def _block() -> Construct:
    return content_of(Object)


_Block = LazyBound(_block)

OBJECT_OPERANDS: Final[dict[int, Construct]] = {
    **VALUE_OPERANDS,
    **TIME_OPERANDS,
    Code.BYTES_LENGTH8: Prefixed(Int8ul, _Block),
    Code.BYTES_LENGTH16: Prefixed(Int16ul, _Block),
    Code.BYTES_LENGTH32: Prefixed(Int32ul, _Block),
    Code.STRING_ANY: LongTextOrNull,
    Code.TYPE_LITERAL: LongTextOrNull,
    **{Code.STRING0 + length: text_in(Bytes(length)) for length in range(32)},
    Code.U8_ARRAY: GreedyBytes,  # not at the start of a block: an error of the writer's
}
Object: Construct = value_of(OBJECT_OPERANDS, types=LongText)
Body = body_of(Object)
