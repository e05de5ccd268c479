"""Files, and directories, that cannot be opened for a while, for whatever user tries."""

from collections.abc import Callable
from pathlib import Path


def made_unreadable(file: Path) -> Callable[[], None]:
    """Makes a file unreadable, also to root: the system says "Too many levels of symbolic links".
    Nothing tells that the file was removed. The returned function brings it back."""
    aside = file.with_name(file.name + ".aside")
    file.rename(aside)
    file.symlink_to(file.name)

    def bring_back() -> None:
        if aside.is_dir():  # which takes no other file's name
            file.unlink()
        aside.replace(file)

    return bring_back
