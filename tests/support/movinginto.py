"""A file system of pyarrow that moves as HDFS does: into a directory that is there already.

    move of a directory   to where nothing is: it is there then; to a directory: it is in it then
    move of a file        to where a file is: that one is removed first, in a step of its own

So a name node of Hadoop 3.5 was seen to rename, and so pyarrow's file system of Hadoop moves files.
All else is done by the file system of this machine.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs


class _MovesInto(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """See the module."""

    def __init__(self) -> None:
        self._local = pafs.LocalFileSystem()

    def get_type_name(self) -> str:
        return "moving-into"

    def get_file_info(self, paths: Sequence[str]) -> "list[pafs.FileInfo]":
        found: list[pafs.FileInfo] = self._local.get_file_info(list(paths))
        return found

    def get_file_info_selector(self, selector: "pafs.FileSelector") -> "list[pafs.FileInfo]":
        found: list[pafs.FileInfo] = self._local.get_file_info(selector)
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        self._local.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._local.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._local.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise OSError("what is expected to go is not all that is there")

    def delete_file(self, path: str) -> None:
        self._local.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        there, moved = self._local.get_file_info([dest, src])
        if there.type is pafs.FileType.Directory:
            dest = f"{dest}/{PurePosixPath(src).name}"
            if self._local.get_file_info(dest).type is not pafs.FileType.NotFound:
                raise OSError(f"cannot rename {src} to {dest}")
        elif there.type is pafs.FileType.File:
            if moved.type is not pafs.FileType.File:
                raise OSError(f"cannot rename {src} to {dest}")
            self._local.delete_file(dest)
        self._local.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self._local.copy_file(src, dest)

    def open_input_stream(self, path: str) -> "pa.NativeFile":
        return self._local.open_input_stream(path)

    def open_input_file(self, path: str) -> "pa.NativeFile":
        return self._local.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> "pa.NativeFile":
        return self._local.open_output_stream(path)

    def open_append_stream(self, path: str, metadata: Any) -> "pa.NativeFile":
        return self._local.open_append_stream(path)

    def normalize_path(self, path: str) -> str:
        return str(self._local.normalize_path(path))


def moving_into() -> "pafs.FileSystem":
    return pafs.PyFileSystem(_MovesInto())


class _MadeWhileListed(_MovesInto):
    """Listing a directory that is not there fails, as pyarrow's does: it looks whether there is
    none, and by then another process has put one there."""

    def __init__(self, made: Path, place: Path) -> None:
        super().__init__()
        self._made, self._place = made, place

    def get_file_info_selector(self, selector: "pafs.FileSelector") -> "list[pafs.FileInfo]":
        if self._made.exists():
            self._made.rename(self._place)
            raise FileNotFoundError(f"Cannot list directory {selector.base_dir!r}")
        return super().get_file_info_selector(selector)


def made_while_listed(made: Path, place: Path) -> "pafs.FileSystem":
    """A file system in which a directory comes to its place while it is listed."""
    return pafs.PyFileSystem(_MadeWhileListed(made, place))
