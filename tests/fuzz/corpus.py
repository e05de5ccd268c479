"""Inputs to start from: the golden vectors of the repository, cut to what a target takes.

Nothing of it is stored a second time: a child writes its corpus into a folder of its own run.
"""

import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

TESTS: Final = Path(__file__).resolve().parents[1]
_VECTORS: Final = TESTS / "vectors"
_STORE_BYTES: Final = 4096
Seeds = Callable[[], Iterable[bytes]]


def _wire_vectors() -> Iterator[dict[str, Any]]:
    files = sorted((_VECTORS / "wire").glob("*.jsonl"))
    for file in [*files, TESTS / "unit" / "wire" / "renderings.jsonl"]:
        for line in file.read_text(encoding="ascii").splitlines():
            yield json.loads(line)


def documents() -> Iterator[bytes]:
    """The bytes of every wire vector, damaged ones too."""
    return (bytes.fromhex(vector["hex"]) for vector in _wire_vectors())


def bodies() -> Iterator[bytes]:
    return (data[4:] for data in documents() if len(data) > 4)


def texts() -> Iterator[bytes]:
    """The texts that are printed for the same documents."""
    for vector in _wire_vectors():
        if "text" in vector:
            yield vector["text"].encode()


def sessions() -> Iterator[bytes]:
    """The bytes that either side sent on every recorded connection."""
    for path in sorted((_VECTORS / "network").glob("*.json")):
        said: dict[tuple[int, str], bytes] = {}
        if path.stem == "acceptor-behaviour":  # is told in another form
            continue
        for entry in json.loads(path.read_text()):
            key = entry["conn"], entry["dir"]
            said[key] = said.get(key, b"") + bytes.fromhex(entry["hex"])
        yield from said.values()


def acceptor_cases() -> Iterator[bytes]:
    """The bytes that were sent to a Java acceptor to see how it takes them."""
    for case in json.loads((_VECTORS / "network" / "acceptor-behaviour.json").read_text()):
        yield b"".join(bytes.fromhex(document) for document in case["sent"])


def stores() -> Iterator[bytes]:
    """The beginning of every store file and table store of the golden queues."""
    for archive in sorted((_VECTORS / "queues").glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield content.read(_STORE_BYTES).rstrip(b"\0") + bytes(4)


def spread(seeds: Seeds, count: int, *, length_max: int = 1024) -> Seeds:
    """At most so many of these seeds, from everywhere among them, each once and none longer."""
    return partial(_spread, seeds, count, length_max)


def _spread(seeds: Seeds, count: int, length_max: int) -> list[bytes]:
    known = list(dict.fromkeys(seed for seed in seeds() if len(seed) <= length_max))
    step = max(1, len(known) / count)
    return [known[int(place * step)] for place in range(min(count, len(known)))]


def changed(seeds: Seeds, change: Callable[[bytes], bytes]) -> Seeds:
    """The same in the form that a target takes."""
    return lambda: map(change, seeds())


def both(*several: Seeds) -> Seeds:
    return lambda: (seed for seeds in several for seed in seeds())


def write(seeds: Seeds, folder: Path) -> int:
    """Writes each into a file named by its content; how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds():
        (folder / sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return sum(1 for _ in folder.iterdir())


def write_dictionary(tokens: Iterable[bytes], path: Path) -> None:
    """Writes the byte strings in the form that libFuzzer reads."""
    lines = ("".join(f"\\x{byte:02X}" for byte in token) for token in tokens)
    path.write_text("".join(f'"{line}"\n' for line in lines))
