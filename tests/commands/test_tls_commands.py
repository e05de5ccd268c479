"""TLS as a user has it: `cqrepl certs`, options of commands, and the file of a cluster."""

import re
import sys
from pathlib import Path

import pytest
import trio

from tests.support.commands import commands
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import copied
from tests.support.samples import fill

pytest.importorskip("cryptography", reason="certificates are made with it")
CLUSTER = """\
cluster:
  context: {{baseSourcePath: {folder}/source, baseSinkPath: {folder}/sink}}
  one: {{hostId: 1, connectUri: 127.0.0.1:{ports[0]}}}
  two: {{hostId: 2, connectUri: 127.0.0.1:{ports[1]}}}
queues: {{q: {{masterId: 1, acknowledge: true}}}}
cqrepl:
  runDir: {folder}/run
  tls:
    mode: required
    ca: {folder}/ca/ca.pem
    cert: {folder}/ca/host-$hostId.pem
    key: {folder}/ca/host-$hostId.key
    crl: {folder}/ca/crl.pem
"""


async def run(*words: object) -> tuple[int, str]:
    """The exit code of a command that ends by itself, and what it prints."""
    program = "from cqrepl.__main__ import main; main()"
    command = [sys.executable, "-P", "-c", program, *map(str, words)]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


async def printed(*words: object) -> str:
    code, text = await run(*words)
    assert code == 0, text
    return text


def files_of(folder: Path, name: str) -> list[object]:
    ca = folder / "ca"
    files = ("ca", ca / "ca.pem"), ("cert", ca / f"{name}.pem"), ("key", ca / f"{name}.key")
    return [each for option, path in files for each in (f"--tls-{option}", path)]


async def test_a_source_and_a_sink_with_certificates(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 300})
    async with commands(120) as start:
        await printed("certs", "ca", tmp_path / "ca")
        await printed("certs", "host", tmp_path / "ca", 1, 2)
        one, two = (files_of(tmp_path, f"host-{each}") for each in (1, 2))
        source = await start("source", tmp_path / "q", "--listen", "127.0.0.1:0", *one)
        at = f"127.0.0.1:{await source.port()}"
        copy = f"q={tmp_path / 'copy'}"
        plain = await start("sink", copy, "--connect", at, "--once")
        assert await plain.exit_code() == 5
        assert "expected TLS, got plain bytes" in plain.said
        half = await start("sink", copy, "--connect", at, *two[:2])
        assert await half.exit_code() == 2
        assert "expected --tls-cert beside it, got none" in half.said
        wrong = await start("sink", copy, "--connect", at, *one, "--once")
        assert await wrong.exit_code() == 5
        assert "expected a certificate of host 2 (cqrepl-host:2), got CN=host 1" in wrong.said
        sink = await start("sink", copy, "--connect", at, *two, "--once")
        own = tmp_path / "ca" / "host-1.pem"
        assert "CN=host 1 (cqrepl-host:1): good" in await printed("certs", "show", own)
        await copied(tmp_path / "q", tmp_path / "copy")
        await source.terminate()
        await sink.succeeds()


async def test_hosts_of_a_file_with_certificates(tmp_path: Path) -> None:
    ports = [reserved_port(), reserved_port()]
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER.format(folder=tmp_path, ports=ports))
    fill(tmp_path / "source" / "q", "FAST_DAILY", {0: 300})
    async with commands(120) as start:
        await printed("certs", "ca", tmp_path / "ca")
        missing = await start("run", "-c", file, "--host-id", 1)
        assert await missing.exit_code() == 5
        assert "host-1.key: cannot be read: No such file or directory" in missing.said
        await printed("certs", "host", tmp_path / "ca", 1, 2)
        one = await start("run", "-c", file, "--host-id", 1)
        two = await start("run", "-c", file, "--host-id", 2)
        await two.says(re.compile("connected"))
        run_dir = tmp_path / "run"
        while True:
            code, said = await run("status", "--run-dir", run_dir, "--max-lag", 0)
            if code == 0:
                break
        assert "connected, CN=host 2 (cqrepl-host:2)" in said
        assert "connected, CN=host 1 (cqrepl-host:1)" in said
        await printed("certs", "revoke", tmp_path / "ca", tmp_path / "ca/host-2.pem")
        await printed("reload", "--run-dir", run_dir, "--host-id", 1)
        await one.says(re.compile("is revoked by"))
        for each in (one, two):
            await each.terminate()
    assert_same(tmp_path / "source" / "q", tmp_path / "sink" / "q")
