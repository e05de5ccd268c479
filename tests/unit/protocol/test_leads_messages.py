"""The documents by which leaders are heard, written and read."""

import pytest

from cqrepl.protocol.messages.leads import (
    Hears,
    Leads,
    Led,
    read_hears,
    read_leads,
    read_lease,
    write_hears,
    write_leads,
    write_lease,
)
from wire import Reader, WireError, Writer


def body(document: bytes, name: str) -> Reader:
    reader = Reader(document[4:])
    assert reader.read_name() == name
    return reader


@pytest.mark.parametrize("queues", [{}, {"a": Led(1, -1), "ü/b": Led(2, 0x4567_0000_0001)}])
def test_leads_come_as_they_were_written(queues: dict[str, Led]) -> None:
    leads = Leads(number=17, queues=queues)
    assert read_leads(body(write_leads(leads), "leads")) == leads


@pytest.mark.parametrize("queues", [{}, {"a": 1, "b": 300}])
def test_hears_come_as_they_were_written(queues: dict[str, int]) -> None:
    hears = Hears(number=1 << 40, queues=queues, refuses=dict.fromkeys(queues, 9))
    assert read_hears(body(write_hears(hears), "hears")) == hears


def test_a_lease_comes_as_it_was_written() -> None:
    writer = Writer()
    write_lease(writer, 2000)
    assert read_lease(Reader(bytes(writer.data)).read_fields()) == 2000
    with pytest.raises(WireError, match="expected the field 'lease', got none"):
        read_lease({})


def test_a_document_without_its_fields_is_refused() -> None:
    writer = Writer()
    with writer.block():
        writer.name("number")
        writer.integer(1)
    with pytest.raises(WireError, match="expected the fields 'number' and 'queues', got number"):
        read_leads(Reader(bytes(writer.data)))
