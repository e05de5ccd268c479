"""A recorded session of two hosts of ours that agreed on runs, held against every statement of what
a run is: the grammar, the reader and the writer, both kernels, and the core on either side.

The source had six excerpts when its sink came, which are one run, and was given one more later,
which is a replication event.
"""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cqrepl.cli.wiredump import main
from cqrepl.kernel.batch import find_excerpts
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.index import Index
from tests.property.test_runs_agree import as_run
from tests.support.peer import SHIFT, Ours, Role, batch, decoded
from wire.text.print_documents import dump_text

TRANSCRIPT = Path(__file__).parents[2] / "vectors" / "network" / "runs.json"
ENTRIES: list[dict[str, Any]] = json.loads(TRANSCRIPT.read_text())
NAME = "out-1"
FIRST = 0x513100000000
PAYLOADS = [
    b"hello",
    b"folk",
    b"a",
    b"a line of thirty-one characters",
    b"a line of thirty-two characters.",
    b"sixth",
]
ALONE = b"one alone"


def documents(direction: str) -> list[bytes]:
    return [bytes.fromhex(each["hex"]) for each in ENTRIES if each["dir"] == direction]


def flights(direction: str) -> list[bytes]:
    """The bytes that one side sent in each go, before the other side said more."""
    return [
        b"".join(bytes.fromhex(each["hex"]) for each in group)
        for sender, group in groupby(ENTRIES, lambda each: each["dir"])
        if sender == direction
    ]


def one(document: bytes) -> dict[str, Any]:
    (message,) = decoded(document)
    return message


def recorded_run() -> tuple[bytes, int]:
    """The document, and its nano time."""
    ((data, message),) = [
        (each, one(each)) for each in documents("source->sink") if "run" in one(each)
    ]
    index, payloads, ns = message["run"]
    assert (index, payloads) == (FIRST, PAYLOADS)
    return data, ns


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_sink_that_is_sent_it_stores_what_was_stored(size: int) -> None:
    ours = Ours(Role.SINK, takes=frozenset({NAME}))
    taken: list[bytes] = []
    for flight in flights("source->sink"):
        for at in range(0, len(flight), size):
            for event in ours.receive(flight[at : at + size]):
                if isinstance(event, ev.QueueOffered):
                    ours.connection.answer_queue(event.cid, 0, SHIFT, None)
                elif isinstance(event, ev.LineageProved):
                    ours.connection.go_on(event.cid)
                elif isinstance(event, ev.AppendExcerpts):
                    assert event.batch.index_first == FIRST + len(taken)
                    taken += [bytes(payload) for _, payload in event.batch]
    assert taken == [*PAYLOADS, ALONE]


def test_a_source_sends_it() -> None:
    """A source sends the run byte for byte, with its nano times and behind its cid document."""
    sent, (data, ns) = documents("source->sink"), recorded_run()
    place = sent.index(data)
    cid = Cid(one(sent[place - 1])["cid"])
    laid = memoryview(as_run(PAYLOADS))
    found = find_excerpts(laid, 0, len(laid))
    stands_in_file = ExcerptBatch(Index(FIRST), laid, found.offsets, found.lengths)
    acknowledged: list[tuple[int, bool]] = []
    ours = Ours(Role.SOURCE, is_dialler=True, cid_first=cid - 1)  # its heartbeat has one
    for flight in flights("sink->source"):
        for event in ours.receive(flight):
            if isinstance(event, ev.Connected):
                assert cid == ours.connection.offer_queue(
                    NAME, FIRST + len(PAYLOADS), acknowledgement=True, source_id=0, shape=None,
                    lineage=Lineage(first_cycle=FIRST >> SHIFT),
                )  # fmt: skip
            elif isinstance(event, ev.LineageClaimed):
                ours.connection.lineage_compared(event.cid)
            elif isinstance(event, ev.StreamingStarted):
                ours.connection.data_to_send()
                run = ours.frame(cid, stands_in_file, ns=ns)
                assert run == sent[place - 1] + data
                index, payload, ns_alone = next(each["re"] for each in map(one, sent)
                                                if "re" in each)  # fmt: skip
                assert (index, payload) == (FIRST + len(PAYLOADS), ALONE)
                ours.frame(cid, batch(index, ALONE), ns=ns_alone)
            elif isinstance(event, ev.Acknowledged):
                acknowledged.append((event.index, event.ns == ns))
    assert acknowledged == [(FIRST + 5, True), (FIRST + 6, False)]


def test_its_text_is_what_is_shown(tmp_path: Path) -> None:
    for direction in ("source->sink", "sink->source"):
        raw = documents(direction)
        texts = [each["text"] for each in ENTRIES if each["dir"] == direction]
        assert [dump_text(each).removesuffix("\n") for each in raw] == texts
    capture = tmp_path / "capture"
    capture.write_bytes(b"".join(documents("source->sink")))
    result = CliRunner().invoke(main, ["--json", str(capture)])
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    (run,) = [line["run"] for line in lines if "run" in line]
    _, ns = recorded_run()
    payload_bytes = sum(map(len, PAYLOADS))
    assert run == {"index": f"0x{FIRST:x}", "ns": ns, "count": 6, "bytes": payload_bytes}
    (text,) = [line["text"] for line in lines if "run" in line]
    (entry,) = [each for each in ENTRIES if bytes.fromhex(each["hex"]) == recorded_run()[0]]
    assert entry["text"] == "--- !!data #binary\n" + text.removesuffix("\n")
