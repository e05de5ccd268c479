"""The positions of a source's named tailers, as told to its sinks, between peers that announced it.

    tailer   {name: text, index: next index to read, version: how often it was moved}

Behind the cid of the queue, and behind the excerpts before the index. A name that does not begin
`replicated:` has no version. Unknown fields are skipped.
"""

from cqrepl.protocol.messages.names import TAILER
from cqrepl.queue.format.tailerposition import (
    VERSION_NONE,
    TailerPosition,
    is_replicated,
    is_tailer_name,
)
from wire import Reader, Writer


def write_tailer(position: TailerPosition) -> bytes:
    """Without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(TAILER)
        with writer.block():
            writer.name("name")
            writer.text(position.name)
            writer.name("index")
            writer.hex_int(position.index)
            if position.version is not None:
                writer.name("version")
                writer.integer(position.version)
    return bytes(writer.data)


def read_tailer(reader: Reader) -> TailerPosition | None:
    """The position in such a document, whose name was read; None for one that no tailer can have.

    Raises:
        WireError: its fields are something else.
    """
    fields = reader.read_block().read_fields()
    name = (fields["name"].read_text() if "name" in fields else None) or ""
    index = fields["index"].read_int() if "index" in fields else -1
    version = fields["version"].read_int() if "version" in fields else None
    if not is_tailer_name(name) or index < 0:
        return None
    if not is_replicated(name):
        return TailerPosition(name=name, index=index)
    if version is None or version < VERSION_NONE:
        return None
    return TailerPosition(name=name, index=index, version=version)
