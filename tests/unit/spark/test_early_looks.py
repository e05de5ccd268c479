"""A job looks at what it was given before it starts Java; and a part that is none is named."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.spark.jobs.archivefiles import ArchivePart, checked_pieces, part_name, write_part
from cqrepl.spark.jobs.archiveplace import place_of
from cqrepl.spark.jobs.blocks import digest_of, read_pieces
from tests.support.invoke import Invoke
from tests.support.samples import fill, noon_index

COUNT = 20


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("lag", "{none}"), "expected a queue directory, found none"),
        (("rebuild", "{none}", "--to", "{out}"), "expected a queue directory, found none"),
        (("restore", "{none}", "{out}"), "expected an archive, found no"),
    ],
)
def test_a_path_is_looked_at_before_java(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...], told: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    none, out = tmp_path / "none", tmp_path / "out"
    done = invoke("spark", *(word.format(none=none, out=out) for word in words))
    assert f"{none}: {told}" in done.output
    assert done.exit_code != 0
    assert not out.exists()


def test_a_part_of_which_any_byte_was_changed_is_named_or_read_as_it_was(tmp_path: Path) -> None:
    """This holds for each byte of the part, and so for its end, where the schema is."""
    fill(tmp_path / "q", "FAST_DAILY", {0: COUNT})
    first, last = int(noon_index()), int(noon_index()) + COUNT - 1
    with Queue.open(tmp_path / "q") as queue:
        pieces = list(read_pieces(queue, first, last))
    digest = digest_of(first, iter(pieces))
    path = part_name(first, last, [digest])
    size = write_part(tmp_path / path, iter(pieces))
    part = ArchivePart(
        path=path, index_first=first, index_last=last, payload_bytes=size, blocks=(digest,)
    )
    data = (tmp_path / path).read_bytes()
    place = place_of(tmp_path)
    for nth in range(len(data)):
        for bit in (1, 0x80):
            flipped = bytearray(data)
            flipped[nth] ^= bit
            (tmp_path / path).write_bytes(flipped)
            try:
                found = [bytes(each.payload) for each in checked_pieces(place, part)]
            except QueueDamaged as error:
                told = str(error)
            else:
                assert found == [bytes(each.payload) for each in pieces]
                continue
            assert str(tmp_path / path) in told
