"""Where an archive is: a directory, or what begins with a prefix in an object store.

Theory of operation. A part is written to a file of this machine first and gets its name when it is
whole, so no name ever stands for half a part. The manifest is exchanged for a new one only if it is
still the one that the run began with (compare-and-swap); a run that comes too late begins again
with what the other one has made. In a directory the lock (`archivelock`) keeps other runs out from
the start. An object store has no locks: there the store itself compares, by the entity tag of the
object (`If-Match`), or that there is none (`If-None-Match`). So nothing may be removed there that
is young, as another run may be about to name it.

Parts go through pyarrow's file systems; the conditions only boto3 knows. Both take credentials and
region from where all tools of the store do: environment, profile, or the machine's role.
"""

import hashlib
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

MANIFEST: Final = "_manifest.json"
SETTLED_S: Final = 24 * 3600
_PARTS: Final = "day="
_COPY_BYTES: Final = 8 << 20
_OPTIONS: Final = frozenset(("endpoint_override", "region"))


class ArchiveChanged(Exception):
    """Another run has put a manifest in place meanwhile. Nothing of it was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A file of an archive: its name, its size in bytes, and how long ago it was changed."""

    name: str
    size: int
    age_s: float


class ArchivePlace(ABC):
    """Where an archive is. Names in it have slashes, and begin with none."""

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

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Removes files, and folders that are empty then."""

    @property
    @abstractmethod
    def settled_s(self) -> float:
        """How old a file is that no run will name any more, when no manifest does."""


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
        with new.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        if self.manifest()[1] != version:
            new.unlink()
            raise _changed(self)
        new.rename(self.path / MANIFEST)

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
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.rename(self.path / name)

    def opened(self, name: str) -> "pa.NativeFile":
        return pa.OSFile(str(self.path / name), "rb")

    def stored(self) -> Iterator[Stored]:
        for pattern in ("*", "day=*/cycle=*/*"):
            for path in self.path.glob(pattern):
                if path.is_file() and path.name != LOCK:
                    found = path.stat()
                    name = str(path.relative_to(self.path))
                    yield Stored(name=name, size=found.st_size, age_s=time.time() - found.st_mtime)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        folders = [*self.path.glob("day=*/cycle=*"), *self.path.glob("day=*")]
        for folder in sorted(folders, reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()


@dataclass(frozen=True, slots=True)
class _Bucket(ArchivePlace):
    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None

    @property
    def text(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def settled_s(self) -> float:
        return SETTLED_S

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

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

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="cqrepl-archive-") as folder:
            yield Path(folder) / Path(name).name

    def keep(self, draft: Path, name: str) -> None:
        # an object is there when its stream is closed, and not at all if that does not happen
        with (
            draft.open("rb") as source,
            _file_system(self.endpoint, self.region).open_output_stream(self._path(name)) as out,
        ):
            while data := source.read(_COPY_BYTES):
                out.write(data)

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


def place_of(archive: Path | str | ArchivePlace) -> ArchivePlace:
    """The place that a path, or a text such as `s3://bucket/prefix`, names.

    `s3://bucket/prefix?endpoint_override=http://host:port&region=...` names another store than
    Amazon's.

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
    if found.scheme != "s3" or not found.netloc or not prefix or set(options) - _OPTIONS:
        raise BadArguments(
            f"expected a directory, or s3://bucket/prefix with {' or '.join(sorted(_OPTIONS))},"
            f" found {archive!r}"
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
def _file_system(endpoint: str | None, region: str | None) -> "pafs.S3FileSystem":
    override = (
        endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    )
    given = {"endpoint_override": override, "region": region}
    return pafs.S3FileSystem(**{name: value for name, value in given.items() if value})
