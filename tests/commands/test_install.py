"""An install: units, images, manifests, and the messages to a service manager."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import trio
from ruamel.yaml import YAML

from cqrepl import Host
from cqrepl.config.clusterfile import load_cluster, read_cluster
from cqrepl.console import exitcodes
from cqrepl.page import alarms
from cqrepl.page.hostlook import Disk, HostLook
from cqrepl.page.settings import AlarmSettings
from cqrepl.page.supervisor import Supervisor
from cqrepl.replicator.settings import HostSettings
from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import BEATS, LOOPBACK, at, copied
from tests.support.requirements import require
from tests.support.samples import fill

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "cqrepl@.service"
CLUSTER = """\
cluster:
  context: {{basePath: {folder}/$hostId}}
  one: {{hostId: 1, connectUri: 127.0.0.1:{ports[0]}}}
  two: {{hostId: 2, connectUri: 127.0.0.1:{ports[1]}}}
queues: {{q: {{masterId: 1}}}}
cqrepl: {{runDir: {folder}/run}}
"""


def loaded(path: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(path))


async def test_a_service_manager_is_told(tmp_path: Path) -> None:
    file, place = tmp_path / "cluster.yaml", tmp_path / "notify"
    file.write_text(CLUSTER.format(folder=tmp_path, ports=[reserved_port(), reserved_port()]))
    manager = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    await manager.bind(str(place))
    said = f"import os; os.environ.update(NOTIFY_SOCKET={str(place)!r}, WATCHDOG_USEC='300000')"
    with manager, trio.fail_after(60):
        async with commands(60, before=said) as start:
            host = await start("run", "-c", file, "--host-id", 1)
            assert await manager.recv(99) == b"READY=1"
            for _ in range(3):
                assert await manager.recv(99) == b"WATCHDOG=1"
            host.send(15)
            told = b""
            while told != b"STOPPING=1":
                told = await manager.recv(99)
            await host.succeeds()


async def test_one_that_does_not_turn_says_nothing(tmp_path: Path) -> None:
    place = tmp_path / "notify"
    manager = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    await manager.bind(str(place))
    turns = [False, False, True]
    environ = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "30000"}
    supervisor = Supervisor(environ)
    with manager, trio.fail_after(30):
        async with supervisor.told(lambda: turns.pop(0) if len(turns) > 1 else turns[0]):
            assert await manager.recv(99) == b"READY=1"
            assert await manager.recv(99) == b"WATCHDOG=1"
            assert turns == [True]
    assert not Supervisor(environ | {"WATCHDOG_PID": str(os.getpid() + 1)}).watchdog_seconds


def test_the_unit_is_verified(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        require("systemd", "systemd is not installed")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/cqrepl/bin/cqrepl", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    score = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True
    )
    found = re.search(r"exposure level for .*: ([0-9.]+)", score.stdout)
    assert found is not None
    assert float(found[1]) <= 2.0
    for name in ("ProtectProc", "ProcSubset", "PrivateUsers", "PrivatePIDs"):
        assert f"{name}=" not in UNIT.read_text()


def test_files_of_clusters_are_good() -> None:
    config = load_cluster(DEPLOY / "container" / "cluster.yaml")
    assert set(config.hosts) == {1, 2, 3}
    (kept,) = [
        each
        for each in loaded(DEPLOY / "kubernetes" / "cqrepl.yaml")
        if each["kind"] == "ConfigMap"
    ]

    assert set(read_cluster(kept["data"]["cluster.yaml"].encode(), "cluster.yaml").hosts) == {
        1,
        2,
        3,
    }


def test_containers_have_no_rights_that_they_do_not_need() -> None:
    (compose,) = loaded(DEPLOY / "container" / "compose.yaml")
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == "10001:10001"
    sets = [e for e in loaded(DEPLOY / "kubernetes" / "cqrepl.yaml") if e["kind"] == "StatefulSet"]
    spec = sets[0]["spec"]
    assert spec["ordinals"] == {"start": 1}
    pod = spec["template"]["spec"]
    assert pod["shareProcessNamespace"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert {"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()


@pytest.mark.parametrize(
    ("program", "file"),
    [
        ("hadolint", "container/Dockerfile"),
        ("kubernetes-validate", "kubernetes/cqrepl.yaml"),
    ],
)
def test_the_image_and_manifests_are_linted(program: str, file: str) -> None:
    words = [Path(sys.executable).parent / program, DEPLOY / file]
    if not words[0].exists():
        require(program, f"{program} is not installed")
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_raise_alerts_when_they_should() -> None:
    if shutil.which("promtool") is None:
        require("promtool", "Prometheus is not installed")
    folder = DEPLOY / "prometheus"
    for words in (
        ["check", "rules", "cqrepl-alerts.yaml"],
        ["test", "rules", *folder.glob("*-test.yaml")],
    ):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def run(*words: object, **environ: str) -> subprocess.CompletedProcess[str]:
    program = "from cqrepl.__main__ import main; main()"
    command = [sys.executable, "-P", "-c", program, *map(str, words)]
    given = dict(os.environ) | environ
    return subprocess.run(command, capture_output=True, text=True, env=given, timeout=60)


def test_the_doctor_names_what_is_wrong_and_a_remedy(tmp_path: Path) -> None:
    ports = [reserved_port(), reserved_port()]
    file = tmp_path / "cluster.yaml"
    tls = "  tls: {mode: on, ca: nowhere.pem, cert: nowhere.pem, key: nowhere.key}\n"
    file.write_text(
        CLUSTER.format(folder=tmp_path, ports=ports).replace("cqrepl: {", "cqrepl:\n  ")
    )
    file.write_text(file.read_text().replace("/run}", "/run\n") + tls)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(file.read_text().replace(str(ports[0]), str(port)))
        bundle = tmp_path / "bundle.tgz"
        done = run("doctor", "-c", file, "--host-id", 1, "--bundle", bundle, tmp_path)
        lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert any(
        each.startswith("fail  certificates   nowhere.key: cannot be read") for each in lines
    )
    assert any(each.startswith(f"fail  port           127.0.0.1:{port}: Address") for each in lines)
    assert any(each.startswith("warn  peer           host 2 at") for each in lines)
    assert all("fix: " in each for each in lines if each.startswith("fail"))
    with tarfile.open(bundle) as packed:
        assert {"cqrepl/doctor.txt", "cqrepl/cluster.yaml"} <= set(packed.getnames())
    again = run("doctor", "--bundle", bundle)
    assert again.returncode == 2
    assert "File exists" in again.stderr
    assert run("doctor", "-c", tmp_path / "none.yaml", "--host-id", 1).returncode == 1


def test_pages_and_completion_come_of_the_options(tmp_path: Path) -> None:
    assert run("manpages", tmp_path / "man").returncode == 0
    page = (tmp_path / "man" / "cqrepl-source.1").read_text()
    assert "\\-\\-tls\\-cert" in page
    assert (tmp_path / "man" / "cqrepl-certs-host.1").exists()
    assert "_CQREPL_COMPLETE" in run("completion", "bash").stdout
    words = {"COMP_WORDS": "cqrepl stat", "COMP_CWORD": "1", "_CQREPL_COMPLETE": "bash_complete"}
    assert "status" in run(**words).stdout


OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def test_each_alarm_and_exit_code_says_what_to_do() -> None:
    names = {name for name, _ in alarms.alarms_of(EVERYTHING, AlarmSettings())}
    assert names == set(re.findall(r"^### Alarm `(\w+)`", OPERATIONS, re.MULTILINE))
    codes = {each for each in vars(exitcodes).values() if isinstance(each, int) and each}
    table = OPERATIONS.partition("## When a command ends with an exit code")[2]
    assert codes == set(map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE)))


EVERYTHING = HostLook(
    host={
        "host": 1,
        "peers": [{"host": 2, "state": "away"}],
        "queues": [
            {"name": "q", "state": "stopped: damaged", "sinks": []},
            {"name": "r", "state": "live", "sinks": [{"host": 2, "state": "live", "lag": 1}]},
        ],
        "tls": {"certificate": "CN=1", "ends": 0.0, "warning": ""},
    },
    at=0.0,
    wall=1.0,
    behind={("r", 2): 1e6},
    disks={"q": Disk(0, 1)},
)


async def test_a_backup_of_closed_files_is_restored_as_the_docs_say(tmp_path: Path) -> None:
    """The closed files of a copy, with what lies beside them, come back as a copy;
    where every host is lost they come back as the queue."""
    for step in ("closed.cqmanifest", "verify --common", "--accept-missing --apply"):
        assert step in OPERATIONS
    queue, copy = tmp_path / "q", tmp_path / "copy"
    fill(queue, "FAST_DAILY", {0: 40, 1: 5, 2: 3})

    async def followed(path: Path) -> None:
        sources = HostSettings.of(sources={"q": queue}, listen=LOOPBACK, remote_ids=[2], **BEATS)
        async with Host(sources) as host:
            assert host.port is not None
            sinks = HostSettings.of(sinks={"q": path}, connect=at(host.port), **BEATS)
            async with Host(sinks):
                await copied(queue, path)

    await followed(copy)
    last = max(copy.glob("*.cq4")).stem
    beside = ("metadata.cq4t", "closed.cqmanifest", "*.cq4", "*.cqmark", "*.cqchain")
    files = [each for pattern in beside for each in copy.glob(pattern) if each.stem != last]
    backup, alone = tmp_path / "backup", tmp_path / "alone"
    for place in (backup, alone):
        place.mkdir()
        for each in files:
            shutil.copy2(each, place)
    checked = run("verify", "--common", queue, backup)
    assert checked.returncode == 4
    assert checked.stdout.count("\nsame ") + checked.stdout.startswith("same ") == 2
    assert re.findall(r"^damaged +\S+/(\w+)\.cq4", checked.stdout, re.MULTILINE) == [last]
    await followed(backup)
    assert_same(queue, backup)
    done = run("repair", alone, "--accept-missing", "--apply")
    assert done.returncode == 0, done.stderr
    assert run("verify", alone).returncode == 0
