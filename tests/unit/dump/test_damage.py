"""Random damage to every kind of input: shown up to it, one line, exit 4; never anything else."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from cqrepl.cli.wiredump import main
from tests.support.goldens import unpack
from tests.support.networks import Network, exchange, set_up
from wire import DocumentReader

ROUNDS = 60
QUICKLY = "--"  # ends the options: without any, store files are shown in large pieces
DAMAGE = ("was expected", "were expected", "missing in the capture")


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
        result = CliRunner().invoke(main, [option, str(file)])
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
    quick, plain = (CliRunner().invoke(main, [o, str(file)]) for o in (QUICKLY, "--max=100000"))
    assert quick.exit_code == plain.exit_code == 0
    assert quick.stdout == plain.stdout
    assert f"# position: {reader.position}, header: 0x00000004 data, 4 bytes\n" in quick.stdout
