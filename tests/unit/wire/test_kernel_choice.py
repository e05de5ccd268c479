"""Which kernel is used: CQREPL_KERNEL, what is there, and whether it fits."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

import cqrepl
from cqrepl.kernel import choose, plain
from cqrepl.kernel.errors import KernelUnavailable
from tests.support.kernels import kernel_named

SAY = "from cqrepl.kernel import choose; print(choose.NAME)"


def named_by_process(choice: str | None) -> str:
    environment = {name: text for name, text in os.environ.items() if name != "CQREPL_KERNEL"}
    if choice is not None:
        environment["CQREPL_KERNEL"] = choice
    command = [sys.executable, "-W", "error", "-P", "-c", SAY]
    return subprocess.check_output(command, env=environment, text=True).strip()


def put_native(patch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """Makes this the native kernel that an import finds; None for none."""
    patch.setitem(sys.modules, "cqrepl._native", module)
    patch.delattr(cqrepl, "_native", raising=False)


def test_the_plain_kernel_is_always_there() -> None:
    assert named_by_process("python") == "python"


@pytest.mark.parametrize("choice", ["native", "auto", None])
def test_the_native_kernel_is_used_where_it_is(choice: str | None) -> None:
    kernel_named("native")
    assert named_by_process(choice) == "native"


def test_without_a_native_kernel_the_plain_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    put_native(monkeypatch, None)
    assert choose.chosen("auto") is plain
    with pytest.raises(KernelUnavailable, match="CQREPL_KERNEL wants the native kernel"):
        choose.chosen("native")


def test_a_native_kernel_of_another_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("cqrepl._native")
    old.__dict__["INTERFACE"] = plain.INTERFACE - 1
    put_native(monkeypatch, old)
    with pytest.warns(RuntimeWarning, match="plain Python kernel in use: .* install cqrepl again"):
        assert choose.chosen("auto") is plain
    with pytest.raises(KernelUnavailable, match="interface"):
        choose.chosen("native")


def test_another_word_is_refused() -> None:
    with pytest.raises(KernelUnavailable, match="expected auto, native or python, found 'fast'"):
        choose.chosen("fast")
