"""Random damage to every kind of input: shown up to it, one line, exit 4; never anything else."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from cqrepl.dump.command import main
from tests.interop.goldens import unpack
from tests.unit.dump.networks import Network, exchange, set_up

ROUNDS = 60
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


@pytest.mark.parametrize("option", ["--max=100000", "--json", "--plain"])
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
