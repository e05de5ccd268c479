"""`wire-dump` on inputs of every kind: the quick way shows what the plain way shows, and random
damage is shown up to where it is, with one line and exit code 4, never anything else."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cqrepl.cli.wiredump import main
from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support.goldens import unpack
from tests.support.networks import Network, exchange, set_up
from wire import DocumentReader
from wire.text.print_documents import dump_text

ROUNDS = 60
NOW_MS = 1_700_000_000_000
QUICKLY = "--"  # ends the options: without any, store files are shown in large pieces
DAMAGE = ("was expected", "were expected", "missing in the capture")


def dump(option: str, file: Path) -> Result:
    return CliRunner().invoke(main, [option, str(file)])


def an_input(kind: str, folder: Path) -> bytes:
    if kind == "queue":
        return (unpack("test_daily_full", folder) / "20240305T1.cq4").read_bytes().rstrip(b"\0")
    if kind == "table":
        return (unpack("test_daily_full", folder) / "metadata.cq4t").read_bytes()[:3000]
    documents = [*set_up(), *exchange(8)]
    if kind == "stream":
        return b"".join(data for direction, data in documents if direction == 1)
    network = Network()
    network.open(40000)
    for direction, data in documents:
        network.say(40000, direction, data, mtu=500)
    save = network.save if kind == "pcap" else network.save_pcapng
    return save(folder / kind).read_bytes()


@pytest.mark.parametrize("option", [QUICKLY, "--max=100000", "--json", "--plain"])
@pytest.mark.parametrize("kind", ["queue", "table", "stream", "pcap", "pcapng"])
def test_damage_is_told_and_nothing_worse(kind: str, option: str, tmp_path: Path) -> None:
    whole = an_input(kind, tmp_path)
    numbers = random.Random(f"{kind} {option}")
    file = tmp_path / "20240305F.cq4"
    for _ in range(ROUNDS):
        data = bytearray(whole)
        for _ in range(numbers.choice((1, 1, 3, 20))):
            data[numbers.randrange(len(data))] = numbers.choice((0, 0xFF, numbers.randrange(256)))
        if numbers.random() < 0.3:
            del data[numbers.randrange(len(data)) :]
        file.write_bytes(data)
        result = dump(option, file)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            bytes(data[:5000]).hex(),
            result.exception,
        )
        assert result.exit_code in (0, 4)
        assert (result.exit_code == 4) is any(words in result.stderr for words in DAMAGE)
        if option == "--json":
            for line in result.stdout.splitlines():
                assert json.loads(line)["v"] == 1


def test_data_in_a_table_store_is_shown_as_it_is(tmp_path: Path) -> None:
    """It has neither index nor sequence there. Found by fuzzing: raw bytes ended the quick way."""
    table = an_input("table", tmp_path)
    reader = DocumentReader(table, padding=True)
    assert len(list(reader)) > 3
    file = tmp_path / "metadata.cq4t"
    file.write_bytes(table[: reader.position] + b"\4\0\0\0\1\2\3\4" + bytes(4))
    quick, plain = dump(QUICKLY, file), dump("--max=100000", file)
    assert quick.exit_code == plain.exit_code == 0
    assert quick.stdout == plain.stdout
    assert f"# position: {reader.position}, header: 0x00000004 data, 4 bytes\n" in quick.stdout


@pytest.mark.parametrize("form", ["raw", "text", "mixed"])
def test_quick_way_and_plain_way_agree(form: str, tmp_path: Path) -> None:
    numbers = random.Random(form)

    def payload() -> bytes:
        if form == "text" or (form == "mixed" and numbers.random() < 0.5):
            return b"abc 123 " * numbers.randrange(1, 30)
        size = numbers.choice((1, 7, 100, 256, 256, 5000, 70_000 if numbers.random() < 0.1 else 3))
        data = numbers.randbytes(size)
        return data if numbers.random() < 0.9 else data[:1] + bytes(100) + b"\x83"

    with Queue.open_for_append(tmp_path / "q", create=QueueLayout.of(by_name("TEST4_DAILY"))) as q:
        appender = q.appender()
        for _ in range(20):
            appender.append([payload() for _ in range(50)], NOW_MS)
    (file,) = (tmp_path / "q").glob("*.cq4")
    quick = dump(QUICKLY, file)
    assert quick.exit_code == 0
    assert quick.stdout == dump("--max=1000000", file).stdout
    data = file.read_bytes()
    assert dump("--plain", file).stdout == dump_text(data, padding=True)
