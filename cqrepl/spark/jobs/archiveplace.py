"""The place of an archive: a directory, or the objects below a prefix in an object store.

Theory of operation. A part is written to a file of this machine first and gets its name when it is
whole, so no name ever stands for half a part. In a directory it is on the disk then, its name and
its folders too, before a manifest names it: a power cut takes nothing of what was done. The
manifest is exchanged for a new one only if it is still the one that the run began with
(compare-and-swap); a run that comes too late begins again with what the other one has made. In a
directory the lock (`archivelock`) keeps other runs out from the start. An object store has no
locks: there the store itself compares, by the entity tag of the object (`If-Match`), or that there
is none (`If-None-Match`). So nothing may be removed there that is young, as another run may be
about to name it.

On HDFS there are no locks and no conditions, but a directory is renamed in one step, and takes no
other one's place. Each manifest is alone in a directory named by its number, and the highest one
counts. Of two runs that rename theirs to the same number the later one is refused, or its directory
is moved into the first one's, as HDFS does; so each looks afterwards whose file lies there. Old
numbers stay for as long as a run may be busy that began with them. A run that finds a higher number
than its own has come too late, too: its number had been removed.

Parts go through pyarrow's file systems; the conditions only boto3 knows. Both take credentials and
region from where all tools of the store do: environment, profile, or the machine's role.
"""

import hashlib
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from cqrepl.console.exitcodes import BadArguments
from cqrepl.spark.jobs.archivelock import LOCK, locked_archive
from cqrepl.surroundings import sync_path

MANIFEST: Final = "_manifest.json"
MANIFESTS: Final = "_manifests"  # where they are numbered
SETTLED_S: Final = 24 * 3600
_PARTS: Final = "day="
_COPY_BYTES: Final = 8 << 20
_OPTIONS: Final = frozenset(("endpoint_override", "region"))
_HADOOP_OPTIONS: Final = frozenset(("user",))
_NUMBER_DIGITS: Final = 8
_LOOKS: Final = 100  # at a directory, while other runs make some below it


class ArchiveChanged(Exception):
    """Another run has put a manifest in place meanwhile. Nothing of it was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A file of an archive: its name, its size in bytes, and how long ago it was changed."""

    name: str
    size: int
    age_s: float


class ArchivePlace(ABC):
    """The place of an archive. Names in it have slashes, and do not begin with one."""

    @property
    @abstractmethod
    def text(self) -> str:
        """As people name it."""

    def at(self, name: str) -> str:
        """A file of it, as people name it."""
        return f"{self.text}/{name}"

    @abstractmethod
    def locked(self) -> AbstractContextManager[None]:
        """Keeps other runs out while a block runs, where that is possible.

        Raises:
            QueueLocked: another run is busy with it.
        """

    @abstractmethod
    def is_unused(self) -> bool:
        """True when nothing is there but what runs leave that did not come to a manifest."""

    def parts(self) -> list[str]:
        """The names of all parts there, by their names alone; also of those that were left over."""
        return sorted(
            each.name
            for each in self.stored()
            if each.name.startswith(_PARTS) and not each.name.rpartition("/")[2].startswith(".")
        )

    @abstractmethod
    def manifest(self) -> tuple[bytes, str | None]:
        """The manifest, and what tells it from others; nothing and None where there is none."""

    @abstractmethod
    def swap_manifest(self, data: bytes, version: str | None) -> None:
        """Puts a manifest in the place of the one of this version; None: there is none yet.

        Raises:
            ArchiveChanged: there is another one.
        """

    @abstractmethod
    def draft(self, name: str) -> AbstractContextManager[Path]:
        """A file of this machine, to become one like `name`; gone behind the block if not kept."""

    @abstractmethod
    def keep(self, draft: Path, name: str) -> None:
        """Makes what was drafted a file of the archive, whole and on disk."""

    @abstractmethod
    def opened(self, name: str) -> "pa.NativeFile":
        """A file, to be read.

        Raises:
            FileNotFoundError: it is not there.
        """

    @abstractmethod
    def stored(self) -> Iterator[Stored]:
        """All that is there of manifests and parts, and what was to become such."""

    def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        """The sizes in bytes of these files, of those that are there; of others it may tell, too.

        Raises:
            OSError: one is there and cannot be read.
        """
        return {each.name: each.size for each in self.stored()}

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Removes files, and folders that are empty then."""

    @property
    @abstractmethod
    def settled_s(self) -> float:
        """The age in seconds from which a file without a name in any manifest is left over: no run
        will name it any more."""


@dataclass(frozen=True, slots=True)
class _Directory(ArchivePlace):
    path: Path

    @property
    def text(self) -> str:
        return str(self.path)

    @property
    def settled_s(self) -> float:
        return 0.0  # the lock keeps other runs out

    def locked(self) -> AbstractContextManager[None]:
        return locked_archive(self.path)

    def is_unused(self) -> bool:
        if not self.path.exists():
            return True
        return not (self.path / MANIFEST).exists() and all(
            path.name == LOCK
            or path.name.startswith(f".{MANIFEST}.")
            or (path.is_dir() and path.name.startswith(_PARTS))
            for path in self.path.iterdir()
        )

    def manifest(self) -> tuple[bytes, str | None]:
        try:
            data = (self.path / MANIFEST).read_bytes()
        except FileNotFoundError:
            return b"", None
        return data, hashlib.blake2b(data, digest_size=16).hexdigest()

    def swap_manifest(self, data: bytes, version: str | None) -> None:
        new = self.path / f".{MANIFEST}.{uuid4().hex}"
        new.write_bytes(data)
        sync_path(new)
        if self.manifest()[1] != version:
            new.unlink()
            raise _changed(self)
        new.rename(self.path / MANIFEST)
        sync_path(self.path)

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            yield new
        finally:
            new.unlink(missing_ok=True)

    def keep(self, draft: Path, name: str) -> None:
        path = self.path / name
        sync_path(draft)
        draft.rename(path)
        while path != self.path:  # its folders may be new, too
            path = path.parent
            sync_path(path)

    def opened(self, name: str) -> "pa.NativeFile":
        return pa.OSFile(str(self.path / name), "rb")

    def stored(self) -> Iterator[Stored]:
        for pattern in ("*", "day=*/cycle=*/*"):
            for path in self.path.glob(pattern):
                if path.is_file() and path.name != LOCK:
                    found = path.stat()
                    name = str(path.relative_to(self.path))
                    yield Stored(name=name, size=found.st_size, age_s=time.time() - found.st_mtime)

    def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        found = {}
        for name in names:
            with suppress(FileNotFoundError, NotADirectoryError):
                # opened, as only then a file system over the network asks anew
                with (self.path / name).open("rb", buffering=0) as file:
                    found[name] = os.fstat(file.fileno()).st_size
        return found

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        folders = [*self.path.glob("day=*/cycle=*"), *self.path.glob("day=*")]
        for folder in sorted(folders, reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()


class _FarPlace(ArchivePlace):
    """One that runs on other machines write to, too: nothing locks it, and a file is drafted on
    this one first."""

    @property
    def settled_s(self) -> float:
        return SETTLED_S

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="cqrepl-archive-") as folder:
            yield Path(folder) / Path(name).name

    @staticmethod
    def _copy(draft: Path, out: "pa.NativeFile") -> None:
        with draft.open("rb") as source:
            while data := source.read(_COPY_BYTES):
                out.write(data)


@dataclass(frozen=True, slots=True)
class _Bucket(_FarPlace):
    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None

    @property
    def text(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def is_unused(self) -> bool:
        return all(each.name.startswith(_PARTS) for each in self.stored())

    def manifest(self) -> tuple[bytes, str | None]:
        client = _client(self.endpoint, self.region)
        try:
            found = client.get_object(Bucket=self.bucket, Key=self._key(MANIFEST))
        except client.exceptions.NoSuchKey:
            return b"", None
        return found["Body"].read(), found["ETag"]

    def swap_manifest(self, data: bytes, version: str | None) -> None:
        client = _client(self.endpoint, self.region)
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            client.put_object(
                Bucket=self.bucket, Key=self._key(MANIFEST), Body=data,
                ContentType="application/json", **condition,
            )  # fmt: skip
        except client.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in (404, 409, 412):
                raise _changed(self) from error
            raise

    def keep(self, draft: Path, name: str) -> None:
        # an object is there when its stream is closed, and not at all if that does not happen
        system = _file_system(self.endpoint, self.region)
        with system.open_output_stream(self._path(name)) as out:
            self._copy(draft, out)

    def opened(self, name: str) -> "pa.NativeFile":
        return _file_system(self.endpoint, self.region).open_input_file(self._path(name))

    def stored(self) -> Iterator[Stored]:
        chosen = pafs.FileSelector(self._path("").rstrip("/"), allow_not_found=True, recursive=True)
        for each in _file_system(self.endpoint, self.region).get_file_info(chosen):
            if each.type is pafs.FileType.File:
                name = each.path.removeprefix(self._path(""))
                age = time.time() - each.mtime.timestamp()
                yield Stored(name=name, size=each.size, age_s=age)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:  # not by pyarrow, which then makes objects that stand for folders
            _client(self.endpoint, self.region).delete_object(
                Bucket=self.bucket, Key=self._key(name)
            )

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def _path(self, name: str) -> str:
        return f"{self.bucket}/{self._key(name)}"


_DRAFT: Final = "draft-"


@dataclass(frozen=True, slots=True)
class RenamingPlace(_FarPlace):
    """A directory of a file system whose only atomic step is to rename.

    Args:
        name: as people name it.
        root: the directory in the file system.
        connect: gives the file system; called where it is used, as tasks are pickled.
    """

    name: str
    root: str
    connect: Callable[[], "pafs.FileSystem"]

    @property
    def text(self) -> str:
        return self.name

    def is_unused(self) -> bool:
        return self._highest()[1] is None and all(
            each.name.startswith((_PARTS, f"{MANIFESTS}/")) for each in self.stored()
        )

    def manifest(self) -> tuple[bytes, str | None]:
        number, path = self._highest()
        if path is None:
            return b"", None
        with self.connect().open_input_file(path) as file:
            return file.read(), str(number)

    def swap_manifest(self, data: bytes, version: str | None) -> None:
        system, own = self.connect(), f"{uuid4().hex}.json"
        number = int(version or 0) + 1
        draft, target = self._path(f"{MANIFESTS}/{_DRAFT}{own}"), self._directory(number)
        system.create_dir(draft)
        with system.open_output_stream(f"{draft}/{own}") as out:
            out.write(data)
        try:
            system.move(draft, target)
        except OSError:
            if not self._is_there(target):  # it is not that another run was faster
                raise
        if self._highest() != (number, f"{target}/{own}"):
            self._remove_directories(f"{target}/{_DRAFT}{own}", draft)
            raise _changed(self)

    def keep(self, draft: Path, name: str) -> None:
        system, path = self.connect(), self._path(name)
        if self._is_there(path):  # its name has the digest of what it holds
            return
        folder, _, last = path.rpartition("/")
        new = f"{folder}/.{last}.{uuid4().hex}"
        system.create_dir(folder)
        with system.open_output_stream(new) as out:
            self._copy(draft, out)
        system.move(new, path)

    def opened(self, name: str) -> "pa.NativeFile":
        return self.connect().open_input_file(self._path(name))

    def stored(self) -> Iterator[Stored]:
        number, _ = self._highest()
        for each in self._listed(self.root):
            name = each.path.removeprefix(self._path(""))
            if each.type is pafs.FileType.File and _number_of(name) < max(number, 1):
                age = time.time() - each.mtime.timestamp()
                yield Stored(name=name, size=each.size, age_s=age)

    def remove(self, names: Iterable[str]) -> None:
        """Folders of parts stay: another run may be about to put one there."""
        system = self.connect()
        for name in names:
            with suppress(FileNotFoundError):  # another run was faster
                system.delete_file(self._path(name))
            if name.startswith(f"{MANIFESTS}/"):
                self._remove_directories(self._path(name).rpartition("/")[0])

    def _highest(self) -> tuple[int, str | None]:
        """The manifest with the highest number, and its file; 0 and None where there is none."""
        found = [
            (number, each.path)
            for each in self._listed(self._path(MANIFESTS))
            if each.type is pafs.FileType.File
            and (number := _number_of(each.path.removeprefix(self._path(""))))
        ]
        return max(found, default=(0, None))

    def _listed(self, path: str) -> "list[pafs.FileInfo]":
        """All that is below a directory; nothing where there is none.

        pyarrow's listing fails, whatever it may miss, where a directory is not there when it is
        read, and is there when pyarrow then asks whether it is: another run has made it in between.
        """
        chosen = pafs.FileSelector(path, allow_not_found=True, recursive=True)
        for left in reversed(range(_LOOKS)):
            try:
                found: list[pafs.FileInfo] = self.connect().get_file_info(chosen)
            except FileNotFoundError:
                if not left:
                    raise
            else:
                return found
        raise AssertionError("unreachable")

    def _is_there(self, path: str) -> bool:
        return self.connect().get_file_info(path).type is not pafs.FileType.NotFound

    def _remove_directories(self, *paths: str) -> None:
        system = self.connect()
        for path in paths:
            with suppress(FileNotFoundError):
                system.delete_dir(path)

    def _directory(self, number: int) -> str:
        return self._path(f"{MANIFESTS}/{number:0{_NUMBER_DIGITS}}")

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def _number_of(name: str) -> int:
    """The number of the manifest that a file is; 0 where it is none."""
    parts = name.split("/")
    if len(parts) == 3 and parts[0] == MANIFESTS and parts[1].isdecimal():
        return int(parts[1])
    return 0


@dataclass(frozen=True, slots=True)
class _Hadoop:
    """Connects to a Hadoop by the address of its name node."""

    address: str

    def __call__(self) -> "pafs.FileSystem":
        return _hadoop(self.address)


def place_of(archive: Path | str | ArchivePlace) -> ArchivePlace:
    """The place that a path, or a text such as `s3://bucket/prefix`, names.

    `s3://bucket/prefix?endpoint_override=http://host:port&region=...` names another store than
    Amazon's; `hdfs://host:port/path?user=...` is of another user.

    Raises:
        BadArguments: it names none.
    """
    if isinstance(archive, ArchivePlace):
        return archive
    if isinstance(archive, Path) or "://" not in archive:
        return _Directory(Path(archive).absolute())
    found = urlsplit(archive)
    options = parse_qs(found.query)
    prefix = found.path.strip("/")
    if found.scheme == "hdfs" and found.netloc and prefix and not set(options) - _HADOOP_OPTIONS:
        address = f"hdfs://{found.netloc}"
        query = f"?{found.query}" if found.query else ""
        return RenamingPlace(f"{address}/{prefix}", f"/{prefix}", _Hadoop(f"{address}/{query}"))
    if found.scheme != "s3" or not found.netloc or not prefix or set(options) - _OPTIONS:
        raise BadArguments(
            f"expected a directory, hdfs://host:port/path, or s3://bucket/prefix with"
            f" {' or '.join(sorted(_OPTIONS))}, found {archive!r}"
        )
    return _Bucket(
        found.netloc,
        prefix,
        options.get("endpoint_override", [None])[0],
        options.get("region", [None])[0],
    )


def _changed(place: ArchivePlace) -> ArchiveChanged:
    return ArchiveChanged(f"{place.text}: expected no other run in this archive, found one's work")


@lru_cache(maxsize=4)
def _client(endpoint: str | None, region: str | None) -> Any:
    try:
        import boto3
    except ImportError as error:
        text = f"{error.name} is not installed, for archives in s3: pip install 'cqrepl[s3]'"
        raise BadArguments(text) from error
    return boto3.client("s3", endpoint_url=endpoint, region_name=region)


@lru_cache(maxsize=4)
def _hadoop(address: str) -> "pafs.FileSystem":
    try:
        return pafs.HadoopFileSystem.from_uri(address)
    except OSError as error:  # of a library that is not found it tells everywhere it has looked
        reason = str(error).partition("\n")[0]
        raise BadArguments(
            f"{address}: expected Hadoop's libhdfs and its name node, found: {reason}"
        ) from error


@lru_cache(maxsize=4)
def _file_system(endpoint: str | None, region: str | None) -> "pafs.S3FileSystem":
    override = (
        endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    )
    given = {"endpoint_override": override, "region": region}
    return pafs.S3FileSystem(**{name: value for name, value in given.items() if value})
