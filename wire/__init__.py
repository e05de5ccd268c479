"""Binary wire: the self-describing binary form of YAML that Chronicle software speaks.

Bytes to values and back; touches no file and no socket.
"""

from wire.document import Document, Splitter
from wire.errors import WireError
from wire.reader import Reader
from wire.writer import Writer

__all__ = ["Document", "Reader", "Splitter", "WireError", "Writer"]
