"""The tables of states, bytes and limits in `docs/protocol.md` show what the code does."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cqrepl.net.address import Address
from cqrepl.net.dialer import PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS
from cqrepl.net.doorstep import UNGREETED_MAX
from cqrepl.net.listener import CONNECTIONS_MAX
from cqrepl.net.peerlog import QUIET_SECONDS
from cqrepl.net.roster import TAKE_OVER_SECONDS, TAKE_OVERS_MAX
from cqrepl.net.settings import NetSettings
from cqrepl.protocol import PAYLOAD_MAX
from cqrepl.protocol.connection import GREETING_BYTES_MAX, GREETING_SECONDS
from cqrepl.protocol.framer import RUN_BYTES_SENT
from cqrepl.protocol.inflow import FRAME_SECONDS
from cqrepl.protocol.messages import (
    write_acknowledgement,
    write_cid,
    write_end_of_stream,
    write_heartbeat,
    write_replication_event,
)
from cqrepl.protocol.messages.announcement import CAPABILITIES_MAX
from cqrepl.protocol.messages.runs import RUN_BYTES_MAX, RUN_EXCERPTS_MAX, RUN_EXCERPTS_MIN
from cqrepl.protocol.outbox import CROWDED_BYTES
from cqrepl.protocol.queuelist import NAME_MAX, NAMES_MAX
from cqrepl.protocol.sendwindow import ALONE_MAX, BYTES_MAX, EXCERPTS_MAX
from cqrepl.protocol.settings import FRAME_OVERHEAD_MAX, INTERVAL_MIN_MS, TIMEOUT_MIN_MS
from cqrepl.protocol.states import SinkState, SourceMove, SourceState
from cqrepl.protocol.uber import (
    HANDLERS_MAX,
    REFUSALS_MAX,
    SMALL_DOCUMENT_MAX,
    WAITING_MAX,
)
from cqrepl.replicator.agreement.firstindex import AHEAD_FILES_MAX
from cqrepl.replicator.marks.resends import RESEND_SECONDS, RESENDS_MAX
from tools.state_diagrams import PAGE, TABLES, Table, main, section, written

KIB, MIB = 1024, 1024 * 1024
INDEX, NS = 0x451600000000, 123456789

LIMITS = {
    "from the connection to the peer's UberHandler": f"{GREETING_SECONDS:g} s",
    "bytes of the first document": f"{GREETING_BYTES_MAX // KIB} KiB",
    "from the first byte of a document to its last": f"{FRAME_SECONDS:g} s",
    "payload of an excerpt": f"{PAYLOAD_MAX // MIB} MiB",
    "body of an `re` document": f"and {FRAME_OVERHEAD_MAX // KIB} KiB",
    "body of any other document": f"{SMALL_DOCUMENT_MAX // KIB} KiB",
    "handlers on a connection": f"{HANDLERS_MAX}",
    "names of queues": f"{NAMES_MAX:,}",
    "length of a queue's name": f"{NAME_MAX}",
    "from our list of queues": "the heartbeat time-out",
    "bytes that wait for a peer": f"{WAITING_MAX // MIB} MiB",
    "handlers that we have ended": f"{HANDLERS_MAX}",
    "capabilities that are kept": f"{CAPABILITIES_MAX}",
    "guests of a listener": f"{NetSettings(listen=Address('h', 1)).guests_max}",
    "refused messages on a connection": f"{REFUSALS_MAX}",
    "excerpts in a run; `cqrepl` sends "
    f"{RUN_BYTES_SENT // KIB} KiB in one": f"{RUN_EXCERPTS_MIN} to {RUN_EXCERPTS_MAX:,}",
    "bytes of a run": f"{RUN_BYTES_MAX // MIB} MiB",
    "excerpts sent and not acknowledged": f"{EXCERPTS_MAX:,}",
    "payload sent and not acknowledged": f"{BYTES_MAX // MIB} MiB",
    "heartbeat interval": f"at least {INTERVAL_MIN_MS} ms",
    "heartbeat time-out": f"at least {TIMEOUT_MIN_MS} ms",
    "connections to a listener": f"{CONNECTIONS_MAX}",
    "of them from one machine": f"{UNGREETED_MAX}",
    "log lines for one reason": f"{QUIET_SECONDS:g} a second",
    "streams of what a sink has acknowledged before": f"{RESENDS_MAX}",
    "new store files of cycles": f"{AHEAD_FILES_MAX} a minute",
}

DOCUMENTS = {
    "cid": write_cid(1),
    "re": write_replication_event(INDEX, b"hello", NS),
    "idx": write_acknowledgement(INDEX, NS),
    "eos": write_end_of_stream(),
    "heartbeat": write_heartbeat(),
}


def without_a_move(table: Table) -> Table:
    moves = dict(table.moves)
    del moves[SourceState.STREAMING, SourceMove.FRAMED]
    return replace(table, moves=moves)


def with_another_state_after(table: Table) -> Table:
    moves = dict(table.moves)
    moves[SourceState.STREAMING, SourceMove.FRAMED] = SourceState.STOPPED
    return replace(table, moves=moves)


def test_the_page_shows_the_tables_as_they_are() -> None:
    page = PAGE.read_text()
    assert written(page) == page, "the tables have changed: `make docs` writes the page anew"


@pytest.mark.parametrize("change", [without_a_move, with_another_state_after])
def test_another_table_makes_another_page(change: Callable[[Table], Table]) -> None:
    page = PAGE.read_text()
    assert written(page, {**TABLES, "source": change(TABLES["source"])}) != page


def test_a_section_says_what_is_true_in_each_state_and_what_each_move_leads_to() -> None:
    text = section(TABLES["sink"])
    assert text.startswith("```mermaid\nstateDiagram-v2\n    [*] --> REGISTERED\n")
    assert "| STOPPED | a gap or a divergence: messages for it are dropped |\n" in text
    states = (f"while {state.name}" for state in SinkState)
    assert f"| move | {' | '.join(states)} |\n" in text
    assert "| FRAMED | - | - | BACK_COPY | - | - |\n" in text
    assert f"| STOP {'| STOPPED ' * len(SinkState)}|\n" in text


def test_check_tells_of_a_change_and_only_writing_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = PAGE.read_text()
    old = right.replace("SINK_AHEAD --> BACK_COPY: LOCKED", "SINK_AHEAD --> STREAMING: LOCKED")
    assert old != right
    page = tmp_path / "page.md"
    page.write_text(old)
    assert main(["--check", "--page", str(page)]) == 1
    assert "make docs" in capsys.readouterr().out
    assert page.read_text() == old
    assert main(["--page", str(page)]) == 0
    assert page.read_text() == right
    assert main(["--check", "--page", str(page)]) == 0


@pytest.mark.parametrize("spoiled", ["", "<!-- states of the sink: begin -->\n" * 2])
def test_a_page_without_its_markers_is_refused(spoiled: str) -> None:
    page = PAGE.read_text().replace("<!-- states of the sink: begin -->\n", spoiled)
    with pytest.raises(ValueError, match=r"one pair of markers expected: .*states of the sink"):
        written(page)


def test_limits_are_those_of_the_code() -> None:
    _, _, rows = PAGE.read_text().partition("| limit | value |\n| --- | --- |\n")
    shown = re.findall(r"^\| (.*) \| (.*) \|$", rows, re.MULTILINE)
    assert len(shown) == len(LIMITS)
    for (name, value), (wanted_name, wanted) in zip(shown, LIMITS.items(), strict=True):
        assert name.startswith(wanted_name)
        assert re.search(rf"(^|\s){re.escape(wanted)}(,|$)", value), f"{name}: {value}, {wanted}"


def test_other_numbers_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    assert f"more than {CROWDED_BYTES // KIB} KiB wait to be sent" in text
    assert f"{BYTES_MAX // MIB} MiB of payload, or seven times as many excerpts" in text
    assert f"{EXCERPTS_MAX:,} that all queues of a connection" in text
    assert f"alone it may have {ALONE_MAX:,}" in text
    assert f"after {PAUSE_FIRST_SECONDS:g} s at first" in text
    assert f"double up to {PAUSE_MAX_SECONDS:g} s" in text
    assert f"one after the other; then one every {RESEND_SECONDS:g} s" in text
    assert (TAKE_OVERS_MAX, TAKE_OVER_SECONDS) == (3, 10)
    assert "taken over three times within ten seconds" in text


def test_documents_are_those_that_are_written() -> None:
    shown = re.findall(r"^\| `(\w+)` \| ([\w-]+) \| `([0-9a-f ]+)` \|$", PAGE.read_text(), re.M)
    assert [name for name, _, _ in shown] == list(DOCUMENTS)
    for name, kind, digits in shown:
        assert bytes.fromhex(digits) == DOCUMENTS[name]
        assert kind == ("meta-data" if name == "cid" else "data")
