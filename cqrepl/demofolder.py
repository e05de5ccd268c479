"""The directory of a demonstration."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """Makes it, for the length of a block; one that is not to be kept goes at its end.

    Args:
        keep: the one that stays; None: a directory of its own, with the temporary files.
    """
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="cqrepl-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
