"""A source's questions about what its sink holds, to find where two copies begin to differ."""

from cqrepl.protocol.messages.names import IDENTITY, PROOF, PROVE
from cqrepl.protocol.messages.offer import Lineage, read_chains, write_chains
from cqrepl.queue.format.identity import Identity, parse_identity
from wire import Reader, WireError, Writer

_INDEX = "index"


def write_prove(index: int) -> bytes:
    """The question what the sink holds before this index; without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(PROVE)
        writer.hex_int(index)
    return bytes(writer.data)


def write_proof(index: int, held: Lineage) -> bytes:
    """The answer, without chains where the sink does not hold all before the index; without its cid
    document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(PROOF)
        with writer.block():
            writer.name(_INDEX)
            writer.hex_int(index)
            write_chains(writer, held)
    return bytes(writer.data)


def read_proof(reader: Reader) -> tuple[int, Lineage]:
    """Index and chains of an answer whose name was read; no chains for what is none.

    Raises:
        WireError: it is no block, or its index is no number.
    """
    fields = reader.read_block().read_fields()
    chain, cycles = read_chains(fields)
    index = fields[_INDEX].read_int() if _INDEX in fields else -1
    return index, Lineage(first_cycle=-1, chain=chain, cycles=cycles)


def write_identity(identity: Identity) -> bytes:
    """The identity of the source's queue; without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(IDENTITY)
        writer.text(identity)
    return bytes(writer.data)


def read_identity(reader: Reader) -> Identity:
    """The identity in such a document, whose name was read.

    Raises:
        WireError: it is none.
    """
    try:
        return parse_identity(reader.read_text() or "")
    except ValueError as error:
        raise WireError(str(error)) from error
