"""The documents of a captured stream: one behind the other, without padding, all complete.

On a socket a header is never 0 and never says "not complete", so either means that the capture is
damaged or is something else; where the next document would start cannot be known.
"""

from collections.abc import Iterator

from cqrepl.dump.documents import Document, DocumentReader
from wire.errors import WireError
from wire.header import is_ready


def walk_stream(first: Document, reader: DocumentReader) -> Iterator[Document]:
    """The documents of a stream up to its end.

    Raises:
        WireError: a header that cannot occur in a stream, or a truncated document.
    """
    document: Document | None = first
    while document is not None:
        if not is_ready(document.word):
            reason = f"a complete document was expected, header 0x{document.word:08x} came"
            raise WireError(reason, document.position)
        yield document
        document = reader.next_document(aligned=False)
