"""The dissector in Wireshark's own reader, beside `wire-dump --json` of the same capture."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from cqrepl.cli.wiredump import main
from cqrepl.dump.dissector import dissector_text
from cqrepl.protocol.messages import WireShape, write_cid, write_heartbeat
from cqrepl.protocol.messages.runs import RUN_HEAD_BYTES, write_run_head
from tests.property.test_runs_agree import as_run
from tests.support.networks import CID, Json, Network, exchange, recorded_sessions, set_up
from tests.support.requirements import require

FRAMES = 1000


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("tshark") is None:
        require("tshark", "no tshark on the path")
    path = tmp_path_factory.mktemp("lua") / "cqrepl.lua"
    path.write_text(dissector_text())
    return path


def tshark(lua: Path, capture: Path, *arguments: str) -> str:
    home = {"HOME": str(lua.parent), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    command = ["tshark", "-X", f"lua_script:{lua}", "-r", str(capture), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=home, check=True, timeout=300
    )
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


def dissected(lua: Path, capture: Path, *options: str) -> list[Json]:
    """The frames as Wireshark has them, in the form of `wire-dump --json`."""
    arguments = (
        *options,
        *["-Y", "cqrepl", "-T", "json", "--no-duplicate-keys", "-J"],
        "frame cqrepl",
    )
    found: list[Json] = []
    for packet in json.loads(tshark(lua, capture, *arguments)):
        layers = packet["_source"]["layers"]
        trees = layers["cqrepl"] if isinstance(layers["cqrepl"], list) else [layers["cqrepl"]]
        found += [frame_of(tree, int(layers["frame"]["frame.number"])) for tree in trees]
    return found


def frame_of(tree: Json, packet: int) -> Json:
    frame: Json = {
        "packet": packet,
        "header": tree["cqrepl.header"],
        "kind": tree["cqrepl.kind"],
        "bytes": int(tree["cqrepl.length"]),
    }
    for name in ("name", "csp", "handler"):
        if f"cqrepl.{name}" in tree:
            frame[name] = tree[f"cqrepl.{name}"]
    if "cqrepl.cid" in tree:
        frame["cid"] = int(tree["cqrepl.cid"])
    if "_ws.expert" in tree:
        frame["unknown_cid"] = "cqrepl.unknown_cid" in str(tree["_ws.expert"])
    for field, name in (("index", "event"), ("ack", "ack")):
        if f"cqrepl.{field}" in tree:
            index = f"0x{int(tree[f'cqrepl.{field}'], 16):x}"
            frame[name] = {"index": index, "ns": int(tree["cqrepl.ns"])}
    if "cqrepl.run_count" in tree:
        frame["run"] = frame.pop("event") | {"count": int(tree["cqrepl.run_count"])}
        assert frame["bytes"] == int(tree["cqrepl.run_bytes"]) + RUN_HEAD_BYTES - 4
    elif "cqrepl.event_bytes" in tree:
        frame["event"]["bytes"] = int(tree["cqrepl.event_bytes"])
    return frame


def dumped(capture: Path) -> list[Json]:
    result = CliRunner().invoke(main, ["--json", str(capture)])
    assert result.exit_code == 0, result.stderr
    frames = []
    for line in result.stdout.splitlines():
        frame = json.loads(line)
        for name in ("v", "position", "connection", "from", "to", "time", "text"):
            del frame[name]
        frame.get("ack", {}).pop("round_trip_ns", None)
        frame.get("run", {}).pop("bytes", None)  # of payload, which takes a look at each header
        frames.append(frame)
    return frames


def test_frames_of_recorded_sessions_are_those_of_wire_dump(lua: Path, tmp_path: Path) -> None:
    """Recorded sessions, then as many generated events as it takes; pieces of any size."""
    network, numbers = Network(), random.Random(3)
    for nth, (_, entries) in enumerate(recorded_sessions()):
        port = 40000 + nth
        network.open(port)
        for place, entry in enumerate(entries):
            direction = int(entry["dir"] == "source->sink")
            # a connection is known by its first packet, so that must hold the handler's type
            mtu = numbers.choice((7, 100, 1460)) if place > 2 else 100
            network.say(port, direction, bytes.fromhex(entry["hex"]), mtu=mtu)
    network.open(50000)
    for direction, data in [*set_up(), *exchange(150)]:
        network.say(50000, direction, data, mtu=numbers.choice((100, 1460)))
    capture = network.save(tmp_path / "capture.pcap")
    ours = dumped(capture)
    assert len(ours) >= FRAMES
    assert any("run" in each for each in ours)  # of two hosts of ours
    theirs = dissected(lua, capture)
    assert theirs[:FRAMES] == ours[:FRAMES]
    assert theirs == ours


def test_runs_are_those_of_wire_dump(lua: Path, tmp_path: Path) -> None:
    network = Network()
    network.open(40000)
    for direction, data in set_up():
        network.say(40000, direction, data)
    for count in (2, 300):
        run = as_run([bytes([at % 251]) * (1 + at % 9) for at in range(count)])
        head = write_run_head(1 << 40, count, (1 << 55) + count, len(run))
        network.say(40000, 1, write_cid(CID) + head + run)
    capture = network.save(tmp_path / "capture.pcap")
    ours = dumped(capture)
    assert [each["run"]["count"] for each in ours if "run" in each] == [2, 300]
    assert dissected(lua, capture) == ours


def test_several_frames_in_one_packet_are_told_apart(lua: Path, tmp_path: Path) -> None:
    network = Network(version=6)
    network.open(40000)
    for direction, data in set_up():
        network.say(40000, direction, data)
    for side in (0, 1):
        said = b"".join(data for direction, data in exchange(20) if direction == side)
        network.say(40000, side, said)
    capture = network.save_pcapng(tmp_path / "capture.pcapng")
    ours = dumped(capture)
    assert dissected(lua, capture) == ours
    assert dissected(lua, capture, "-2") == ours  # each frame is looked at again, as in Wireshark


def test_older_form_of_registrations_is_understood(lua: Path, tmp_path: Path) -> None:
    """csp and cid in one document, the handler in the next."""
    network = Network()
    network.open(40000)
    for direction, data in [*set_up(WireShape.SEED), *exchange(3)]:
        network.say(40000, direction, data)
    capture = network.save(tmp_path / "capture.pcap")
    ours = dumped(capture)
    assert [line["handler"] for line in ours if line["name"] == "re"] == [
        "SinkReplicationHandler"
    ] * 3
    assert dissected(lua, capture) == ours


def test_filters_and_expert_notes(lua: Path, tmp_path: Path) -> None:
    network = Network()
    network.open(40000)
    for direction, data in [*set_up(), *exchange(3)]:
        network.say(40000, direction, data)
    network.say(40000, 0, write_cid(CID + 1) + write_heartbeat())
    network.say(40000, 1, b"\xff\xff\xff\x3f" + bytes(40))
    capture = network.save(tmp_path / "capture.pcap")

    def count(expression: str) -> int:
        return len(tshark(lua, capture, "-Y", expression).splitlines())

    assert count("cqrepl.index == 0x451600000001") == 1
    assert count("cqrepl.ack == 0x451600000002") == 1
    assert count(f"cqrepl.cid == {CID}") > 3
    assert count('cqrepl.csp == "/replication/out-1/2" && cqrepl.name == "re"') == 3
    assert count('cqrepl.handler == "UberHandler"') == 2
    assert count("cqrepl.unknown_cid") == 1
    assert count("cqrepl.oversize") == 1


def test_other_protocols_are_left_alone(lua: Path, tmp_path: Path) -> None:
    network = Network()
    network.open(40000)
    network.say(40000, 0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    capture = network.save(tmp_path / "capture.pcap")
    assert tshark(lua, capture, "-Y", "cqrepl") == ""


def test_script_holds_the_tables_of_the_codec() -> None:
    text = dissector_text()
    assert "@TABLES@" not in text
    assert "local BLOCK_LENGTH = { [0x80] = 1, [0x81] = 2, [0x82] = 4 }\n" in text
    assert '  ["SinkReplicationHandler"] = "SinkReplicationHandler",\n' in text
    assert CliRunner().invoke(main, ["--dissector"]).stdout == text
