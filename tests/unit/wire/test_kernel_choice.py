"""The choice of the kernel: by CQREPL_KERNEL, by what is installed, and by whether it fits."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

import pytest

import cqrepl
from cqrepl.kernel import choose, plain
from cqrepl.kernel.errors import KernelUnavailable


def put_native(patch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """Makes this the native kernel that an import finds."""
    patch.setitem(sys.modules, "cqrepl._native", module)
    patch.delattr(cqrepl, "_native", raising=False)


def look_only_in(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Makes an import look for the native kernel in this folder and nowhere else."""
    patch.delitem(sys.modules, "cqrepl._native", raising=False)
    patch.delattr(cqrepl, "_native", raising=False)
    patch.setattr(cqrepl, "__path__", [str(folder)])
    patch.setattr(
        sys, "meta_path", [PathFinder]
    )  # an editable installation has a finder of its own


def test_without_a_native_kernel_the_plain_one_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The import system finds no file, as where the kernel was not built; no warning is given."""
    look_only_in(monkeypatch, tmp_path)
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


def test_a_native_kernel_that_cannot_be_loaded_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_native.abi3.so").write_bytes(b"cut off")
    look_only_in(monkeypatch, tmp_path)
    with pytest.warns(RuntimeWarning, match="plain Python kernel in use: .*_native.abi3.so"):
        assert choose.chosen("auto") is plain


def test_another_word_is_refused() -> None:
    with pytest.raises(KernelUnavailable, match="expected auto, native or python, found 'fast'"):
        choose.chosen("fast")
