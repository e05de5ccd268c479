"""`cqrepl: schemas:` of a host that runs as a process."""

import json
from pathlib import Path

import pytest

from tests.support.commands import commands, until
from tests.support.invoke import Invoke

ORDERS = json.dumps({"title": "Order", "type": "object", "properties": {"px": {"type": "number"}}})
CLUSTER = """\
!QueueReplicationCfg
cluster:
  context: !QueueClusterContext {{baseSourcePath: {0}, baseSinkPath: {0}/copies}}
  host1: {{hostId: 1, connectUri: "127.0.0.1:2"}}
  host2: {{hostId: 2, connectUri: "127.0.0.1:1"}}
queues:
  orders: {{masterId: 1}}
cqrepl:
  schemas: {1}
"""


async def test_a_host_keeps_the_schemas_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text(ORDERS)
    given = f"{{orders: {tmp_path / 'orders.json'}}}"
    (tmp_path / "cluster").write_text(CLUSTER.format(tmp_path, given))
    kept = tmp_path / "orders" / "schema.json"
    async with commands() as start:
        words = ("run", "-c", tmp_path / "cluster", "--host-id", 1, "--listen", "127.0.0.1:0")
        command = await start(*words, "--run-dir", tmp_path / "run")
        await until(kept.is_file)
        assert kept.read_text() == ORDERS
        await command.terminate()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("{", "Expecting property name"),
        ("[]", "an object expected, got []"),
    ],
)
def test_a_file_that_is_no_schema_is_told_in_one_line(
    invoke: Invoke, tmp_path: Path, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "orders.json").write_text(content)
    given = f"{{orders: {tmp_path / 'orders.json'}}}"
    (tmp_path / "cluster").write_text(CLUSTER.format(tmp_path, given))
    words = ("run", "-c", tmp_path / "cluster", "--host-id", 1, "--listen", "127.0.0.1:0")
    result = invoke(*words, "--run-dir", tmp_path / "run")
    assert result.exit_code == 2, result.output
    line = next(each for each in result.stderr.splitlines() if "expected a schema" in each)
    assert f"{tmp_path / 'cluster'}:9:" in line
    assert said in line
    assert "Traceback" not in result.stderr
