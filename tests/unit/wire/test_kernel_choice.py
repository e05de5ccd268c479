"""Which kernel is used: CQREPL_KERNEL, what is installed, and whether it fits."""

import sys
from types import ModuleType

import pytest

import cqrepl
from cqrepl.kernel import choose, plain
from cqrepl.kernel.errors import KernelUnavailable


def put_native(patch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """Makes this the native kernel that an import finds; None for none."""
    patch.setitem(sys.modules, "cqrepl._native", module)
    patch.delattr(cqrepl, "_native", raising=False)


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
