"""`wire-dump`: what a queue file, a table store or a captured stream holds, as annotated text.

`documents` reads one document after the other, `files` and `streams` know where the next one starts
and where they end, `command` prints them.
"""

from cqrepl.dump.documents import Document, DocumentReader
from cqrepl.dump.files import read_documents

__all__ = ["Document", "DocumentReader", "read_documents"]
