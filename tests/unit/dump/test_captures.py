"""Captures: what `wire-dump` makes of packets, in order or not, whole or not, of any link."""

import json
import random
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.wiredump import main
from cqrepl.dump.reassembly import HalfStream
from cqrepl.dump.segments import parse_segment
from cqrepl.protocol.messages import WireShape, write_cid, write_heartbeat
from tests.support.networks import (
    CID,
    CSP,
    FIRST_INDEX,
    Json,
    Network,
    exchange,
    recorded_sessions,
    set_up,
)


def dump(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def lines(*arguments: str | Path) -> list[Json]:
    result = dump("--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def session(*, events: int = 20, mtu: int = 1460, version: int = 4) -> Network:
    network = Network(version=version)
    network.open(40000)
    for direction, data in [*set_up(), *exchange(events)]:
        network.say(40000, direction, data, mtu=mtu)
    return network


def bodies(found: list[Json]) -> list[tuple[str, int, str]]:
    return [(line["from"], line["position"], line["header"]) for line in found]


def test_documents_are_resolved_and_timed(tmp_path: Path) -> None:
    found = lines(session(events=1).save(tmp_path / "c"))
    event = next(line for line in found if line["name"] == "re")
    assert event["v"] == 1
    assert (event["from"], event["to"]) == ("10.0.0.2:7001", "10.0.0.1:40000")
    assert (event["csp"], event["cid"], event["handler"]) == (CSP, CID, "SinkReplicationHandler")
    assert event["event"]["index"] == f"0x{FIRST_INDEX:x}"
    ack = next(line for line in found if line["name"] == "idx")
    assert ack["handler"] == "SourceReplicationHandler"
    assert ack["ack"] == {
        "index": f"0x{FIRST_INDEX:x}",
        "ns": event["event"]["ns"],
        "round_trip_ns": 1_234_567,
    }
    assert event["time"] == "2023-11-14T22:13:20.134567892Z"


def test_text_names_ends_handler_and_round_trip(tmp_path: Path) -> None:
    text = dump(session(events=1).save(tmp_path / "c")).stdout
    assert (
        f"10.0.0.1:40000 > 10.0.0.2:7001, csp {CSP}, cid {CID}, SourceReplicationHandler, "
        f"idx 0x{FIRST_INDEX:x}, round trip 1.235 ms\n--- !!data #binary\n"
    ) in text


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("mtu", [1, 13, 1460])
def test_pieces_of_any_size_hold_the_same_documents(mtu: int, version: int, tmp_path: Path) -> None:
    network = session(events=6, mtu=mtu, version=version)
    whole = bodies(lines(session(events=6, version=version).save(tmp_path / "whole")))
    assert bodies(lines(network.save(tmp_path / "c"))) == whole
    assert bodies(lines("--pcap", network.save_pcapng(tmp_path / "ng"))) == whole


def test_missing_packet_ends_its_direction_only(tmp_path: Path) -> None:
    network = session(mtu=100)
    whole = lines(network.save(tmp_path / "whole"))
    from_source = [piece for piece in network.pieces if b"re\x82" in piece.data]
    network.pieces.remove(from_source[3])
    result = dump("--json", network.save(tmp_path / "c"))
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 4
    assert result.stderr.count("\n") == 1
    assert "10.0.0.2:7001 > 10.0.0.1:40000: 100 bytes are missing in the capture" in result.stderr
    for sender, is_whole in (("10.0.0.1:40000", True), ("10.0.0.2:7001", False)):
        there = bodies([line for line in found if line["from"] == sender])
        all_ = bodies([line for line in whole if line["from"] == sender])
        assert there == all_[: len(there)]
        assert (there == all_) is is_whole


def test_connections_without_documents_are_left_out(tmp_path: Path) -> None:
    network = session(events=1)
    network.open(50000)
    network.say(50000, 0, b"GET / HTTP/1.1\r\n\r\n")
    network.say(50000, 1, b"HTTP/1.1 200 OK\r\n\r\n")
    result = dump(network.save(tmp_path / "c"))
    assert result.exit_code == 0
    assert result.stderr.endswith("1 connection was left out: no documents in them\n")
    assert "HTTP" not in result.stdout


def test_capture_without_documents_is_refused(tmp_path: Path) -> None:
    network = Network()
    network.open(50000)
    network.say(50000, 0, b"SSH-2.0-OpenSSH\r\n")
    result = dump(network.save(tmp_path / "c"))
    assert (result.exit_code, result.stdout) == (4, "")


def test_ports_used_again_are_another_connection(tmp_path: Path) -> None:
    network = session(events=1)
    network.open(40000)
    for direction, data in set_up():
        network.say(40000, direction, data)
    found = lines(network.save(tmp_path / "c"))
    assert {line["connection"] for line in found} == {1, 2}
    assert sum(line["position"] == 0 for line in found) == 4


def test_unknown_cid_is_told(tmp_path: Path) -> None:
    network = session(events=0)
    network.say(40000, 0, write_cid(5) + write_heartbeat())
    capture = network.save(tmp_path / "c")
    assert "cid 5, unknown cid\n" in dump(capture).stdout
    assert [line["cid"] for line in lines(capture) if line.get("unknown_cid")] == [5, 5]


def test_bytes_that_are_no_documents_end_a_direction(tmp_path: Path) -> None:
    network = session(events=1)
    network.say(40000, 0, bytes(8))
    result = dump(network.save(tmp_path / "c"))
    assert result.exit_code == 4
    assert "a complete document was expected, header 0x00000000 came at position" in result.stderr


def test_document_cut_off_by_the_end_is_told(tmp_path: Path) -> None:
    network = session(events=1)
    network.say(40000, 0, struct.pack("<I", 100) + bytes(50))
    result = dump(network.save(tmp_path / "c"))
    assert result.exit_code == 4
    assert "100 bytes behind header 0x00000064 were expected, 50 came" in result.stderr


@pytest.mark.parametrize("cut", [1, 10, 17, 100])
def test_truncated_capture_is_shown_up_to_the_damage(cut: int, tmp_path: Path) -> None:
    for save in ("save", "save_pcapng"):
        capture = getattr(session(events=3), save)(tmp_path / save)
        whole = dump(capture).stdout
        capture.write_bytes(capture.read_bytes()[:-cut])
        result = dump(capture)
        assert result.exit_code == 4
        assert "was expected" in result.stderr
        assert whole.startswith(result.stdout)
        assert result.stdout


def test_position_of_a_capture_is_refused(tmp_path: Path) -> None:
    result = dump("--at", "0", session(events=1).save(tmp_path / "c"))
    assert (result.exit_code, result.stdout) == (2, "")


def test_events_and_acknowledgements_of_a_range(tmp_path: Path) -> None:
    index = f"{FIRST_INDEX + 3:x}"
    found = lines("--from", index, "--to", index, session().save(tmp_path / "c"))
    assert [line["name"] for line in found] == ["re", "idx"]


def test_stream_of_one_direction_is_resolved(tmp_path: Path) -> None:
    documents = [*set_up(WireShape.SEED), *exchange(2)]
    stream = tmp_path / "stream"
    stream.write_bytes(b"".join(data for direction, data in documents if direction == 1))
    events = [line for line in lines(stream) if line["name"] == "re"]
    assert [(line["csp"], line["handler"]) for line in events] == [
        (CSP, "SinkReplicationHandler")
    ] * 2
    assert (
        f"cid {CID}, SinkReplicationHandler, re 0x{FIRST_INDEX:x}, payload" in dump(stream).stdout
    )


def test_recorded_sessions_are_shown_whole(tmp_path: Path) -> None:
    network = Network()
    count = 0
    for nth, (_, entries) in enumerate(recorded_sessions()):
        network.open(40000 + nth)
        for entry in entries:
            direction = int(entry["dir"] == "source->sink")
            network.say(40000 + nth, direction, bytes.fromhex(entry["hex"]))
            count += 1
    found = lines(network.save(tmp_path / "c"))
    assert len(found) == count
    assert not any(line.get("unknown_cid") for line in found)
    acks = [line["ack"] for line in found if "ack" in line]
    assert acks
    assert all("round_trip_ns" in ack for ack in acks)


@pytest.mark.parametrize(
    ("link", "before"),
    [
        (0, b"\x02\0\0\0"),
        (1, bytes(12) + b"\x08\x00"),
        (1, bytes(12) + b"\x81\x00\0\x05\x08\x00"),
        (101, b""),
        (113, bytes(14) + b"\x08\x00"),
        (276, b"\x08\x00" + bytes(18)),
    ],
)
def test_kinds_of_link(link: int, before: bytes) -> None:
    tcp = struct.pack(">HHIIBBHHH", 1, 2, 3, 0, 5 << 4, 0x18, 0, 0, 0) + b"abc"
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + bytes(4) + b"\1\2\3\4"
    segment = parse_segment(link, before + ip + tcp + b"filled up")
    assert segment is not None
    assert (segment.payload, segment.target) == (b"abc", ("1.2.3.4", 2))
    for length in range(len(before + ip) + 19):
        cut = parse_segment(link, (before + ip + tcp)[:length])
        assert cut is None or not cut.payload


def test_random_packets_never_surprise() -> None:
    numbers = random.Random(6)
    for _ in range(3000):
        data = bytearray(numbers.randbytes(numbers.randrange(0, 80)))
        if data and numbers.random() < 0.8:
            data[0] = numbers.choice((0x45, 0x60))
        parse_segment(numbers.choice((0, 1, 101, 113, 276, 7)), bytes(data))


def test_stream_is_put_together_from_any_order() -> None:
    numbers = random.Random(7)
    data = numbers.randbytes(5000)
    for start in (0, (1 << 32) - 100):
        half = HalfStream()
        half.begin(start)
        cuts = sorted({0, len(data), *(numbers.randrange(len(data)) for _ in range(60))})
        parts = [(a, data[a : b + numbers.randrange(50)]) for a, b in pairwise(cuts)]
        parts += numbers.sample(parts, 20)
        numbers.shuffle(parts)
        given = b"".join(half.add((start + at) % (1 << 32), part) for at, part in parts)
        assert given == data
        assert half.missing is None
