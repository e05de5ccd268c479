"""Store files without a header: left by a creator that died, or damaged.

Theory of operation. A creator lays header and first index pages, and makes the header ready last;
no writer appends before. So a file whose header is not ready holds nothing behind those pages. If
it does, the header was lost to damage, the excerpts may still be there, and the file must not be
taken for one that was never finished: it would be put aside, and its indexes be given out again.
"""

from pathlib import Path
from typing import Final

from cqrepl.queue.files.filebytes import FileBytes
from cqrepl.queue.files.storefile import SUFFIX
from cqrepl.queue.format import rollcycle
from cqrepl.queue.format.errors import QueueDamaged
from cqrepl.queue.format.storeimage import store_image
from wire.header import HEADER_BYTES, is_ready

_PIECE_BYTES: Final = 1 << 20


def check_unfinished(path: Path) -> None:
    """Does nothing for a file that its creator has not finished, or has finished by now.

    Raises:
        QueueDamaged: it has no header, but something stands where excerpts do.
        FileNotFoundError: there is no file.
    """
    position = remains(path)
    if position is not None:
        raise QueueDamaged(
            f"expected the header of a store file, found none, but excerpts from {position} on",
            path=path,
            position=0,
        )


def remains(path: Path) -> int | None:
    """The position of the first word that is not zero behind the first pages of a file without a
    header; None where there is none."""
    try:
        roll_cycle = rollcycle.by_file_name(path.name.removesuffix(SUFFIX))
    except ValueError:
        return None
    with FileBytes(path) as file:
        if is_ready(file.word(0)):
            return None
        position = len(store_image(roll_cycle.index_count, roll_cycle.index_spacing))
        while data := file.read(position, _PIECE_BYTES):
            if any(data):
                found = position + len(data) - len(data.lstrip(b"\0"))
                # its last word may be finished by now
                return None if is_ready(file.word(0)) else found - found % HEADER_BYTES
            position += len(data)
    return None
