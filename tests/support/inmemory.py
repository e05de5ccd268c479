"""A folder in memory, for tests that no disk is to slow down: those that sync often, or measure how
long processes wait for each other.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 1 << 30  # free there, that a test may use; a container may have next to nothing


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES
    with tempfile.TemporaryDirectory(dir=MEMORY if has_room else otherwise) as made:
        yield Path(made)
