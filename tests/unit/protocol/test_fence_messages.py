"""Requests about who is to lead, and positions of copies: what newer hosts add, older ones pass
over, and what they do not say means what it did before."""

from dataclasses import replace

import pytest

from cqrepl.protocol.messages.fences import (
    CopyPosition,
    FenceBy,
    FenceRequest,
    FenceVerb,
    read_position,
    read_request,
    write_position,
    write_request,
)
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.index import Index
from wire import Reader, WireError, Writer


def fields_of(request: FenceRequest) -> dict[str, Reader]:
    writer = Writer()
    write_request(writer, request)
    return Reader(bytes(writer.data)).read_fields()


@pytest.mark.parametrize("by", FenceBy)
def test_a_request_comes_as_it_was_written(by: FenceBy) -> None:
    request = FenceRequest(verb=FenceVerb.FENCE, epoch=7, by=by, chain=b"\1" * 16)
    assert read_request(fields_of(request)) == request


def test_an_operators_request_is_what_older_hosts_write() -> None:
    assert "by" not in fields_of(FenceRequest(verb=FenceVerb.FENCE, epoch=7))


def test_a_word_that_is_not_known_is_refused() -> None:
    writer = Writer()
    write_request(writer, FenceRequest(verb=FenceVerb.FENCE, epoch=7))
    writer.name("by")
    writer.text("lot")
    with pytest.raises(WireError, match="'lot'"):
        read_request(Reader(bytes(writer.data)).read_fields())


@pytest.mark.parametrize("hears", [True, False])
def test_a_position_says_whether_its_host_hears_a_leader(hears: bool) -> None:
    position = CopyPosition(next_index=Index(9), epochs=Epochs(), is_source=False)
    position = replace(position, hears=hears)
    document = write_position(position)
    assert (b"hears" in document) is hears
    reader = Reader(document[4:])
    assert reader.read_name() == "position"
    assert read_position(reader) == position
