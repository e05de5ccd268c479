"""`python -m wire`, what `import wire` loads, and which kernel a process picks."""

import os
import struct
import subprocess
import sys

import pytest

from tests.support.kernels import kernel_named

SAY = "from cqrepl.kernel import choose; print(choose.NAME)"


def document(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def run_module(data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "wire", *arguments]
    return subprocess.run(command, input=data, capture_output=True, check=False)


def test_module_dumps_standard_input() -> None:
    done = run_module(bytes.fromhex("03000000c0e17904000000c161a101"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b'--- !!data #binary\n"": y\n# position: 7, header: 1\n' + (
        b"--- !!data #binary\na: 1\n"
    )


def test_module_takes_padding() -> None:
    done = run_module(bytes.fromhex("03000000c0e1790004000000c161a101"), "--padding")
    assert b"# position: 8, header: 1\n" in done.stdout


def test_module_does_not_mind_a_closed_pipe() -> None:
    command = [sys.executable, "-m", "wire"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(document(b"\xc1a\xa1\x01") * 1000)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_import_loads_only_what_the_data_path_needs() -> None:
    rest = "{'wire.objects.documents', 'wire.text.print_documents'}"
    code = f"import sys, wire; sys.exit(not {rest}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0


def named_by_process(choice: str | None) -> str:
    environment = {name: text for name, text in os.environ.items() if name != "CQREPL_KERNEL"}
    if choice is not None:
        environment["CQREPL_KERNEL"] = choice
    command = [sys.executable, "-W", "error", "-P", "-c", SAY]
    return subprocess.check_output(command, env=environment, text=True).strip()


def test_the_plain_kernel_is_always_there() -> None:
    assert named_by_process("python") == "python"


@pytest.mark.parametrize("choice", ["native", "auto", None])
def test_the_native_kernel_is_used_where_it_is(choice: str | None) -> None:
    kernel_named("native")
    assert named_by_process(choice) == "native"
