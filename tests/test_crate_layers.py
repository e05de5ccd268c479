"""The layers of the Rust kernel, which no import contract sees, read from its sources.

The crate's folders stand in one order, and a module uses only modules of its own folder and of
those below. No module uses itself by a way around. Unsafe code stands in `mem` alone; sockets,
files and clocks are touched in `live`, `append` and `mem` alone. No two types have one name. A
comment names the part that it speaks of.

The compiler holds none of this. What is read are the paths that a file names: those of its `use`
trees, and those within its code. Each rule is tried on sources that break it, as well.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

CRATE: Final = Path(__file__).resolve().parent.parent / "native" / "kernel"
# from above to below
FOLDERS: Final = ("python", "live", "append", "batch", "mem")
UNSAFE_FOLDER: Final = "mem"
TOUCHING_FOLDERS: Final = ("live", "append", "mem")
TOUCHING_MODULES: Final = ("env", "fs", "io", "net", "os", "process", "thread", "time")
# a length of time is no clock, and an address with a length no call
PURE: Final = ("std::time::Duration", "std::io::IoSlice")
PURE_CRATES: Final = {"pyo3", "xxhash_rust"}
GLOBS: Final = ("pyo3::prelude::*",)

_NO_CODE: Final = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | b?c?r?"(?:\\.|[^"\\])*" | b?'(?:\\.[^']*|[^'\\])'""",
    re.DOTALL | re.VERBOSE,
)
_USE: Final = re.compile(r"\buse\s+([^;]+);")
_EXTERN: Final = re.compile(r"\bextern\s+crate\s+(\w+)")
_PATH: Final = re.compile(r"(?:::\s*)?\b[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)+")
_TYPE: Final = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|union|trait)\s+(\w+)"
    r"|^(?:pub(?:\([^)]*\))?\s+)?type\s+(\w+)",  # those further in belong to an impl
    re.MULTILINE,
)

_RIDDLE: Final = re.compile(r"//.*?\b(somebody|someone|nobody|whoever|whomever)\b", re.IGNORECASE)

Sources = Mapping[str, str]  # path within src -> text


# ---------------------------------------------------------------- what a file names


def code_of(text: str) -> str:
    """The text without comments, strings and characters."""
    return _NO_CODE.sub(" ", text)


def branches(tree: str) -> Iterator[str]:
    """The paths of a `use` tree: `a::{b, c::{self, d}}` is `a::b`, `a::c` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        path = re.sub(r"\s+as\s+\w+$", "", tree.strip())
        yield re.sub(r"\s+|^::|::self$", "", path)
        return
    depth, branch = 0, ""
    for character in rest[: rest.rindex("}")] + ",":
        if character == "," and depth == 0:
            if branch.strip():
                yield from branches(head + branch.strip())
            branch = ""
            continue
        depth += (character == "{") - (character == "}")
        branch += character


def paths_of(text: str) -> set[str]:
    """All paths that a file names."""
    code = code_of(text)
    found = {path for tree in _USE.findall(code) for path in branches(tree)}
    found.update(_EXTERN.findall(code))
    found.update(re.sub(r"\s+|^::", "", path) for path in _PATH.findall(_USE.sub(" ", code)))
    return found


def module_of(file: str) -> str:
    """`live::acks` for `live/acks.rs`, `mem` for `mem/mod.rs`; nothing for `lib.rs`."""
    parts = [part for part in file.removesuffix(".rs").split("/") if part not in ("mod", "lib")]
    return "::".join(parts)


def used_module(module: str, path: str, modules: set[str]) -> str | None:
    """The module of the crate that a path leads to, seen from a module; None for none."""
    first, *rest = path.split("::")
    if first == "crate":
        inner = rest
    elif first in ("self", "super"):
        here = module.split("::") if module else []
        names = [first, *rest]
        while names and names[0] in ("self", "super"):
            here = here[:-1] if names.pop(0) == "super" else here
        inner = [*here, *names]
    elif f"{module}::{first}".removeprefix("::") in modules:
        inner = [*filter(None, module.split("::")), first, *rest]
    else:
        return None
    while inner and "::".join(inner) not in modules:
        inner = inner[:-1]
    return "::".join(inner)


# ---------------------------------------------------------------- the rules


def uses_of(sources: Sources) -> dict[str, set[str]]:
    """Module -> the others that it uses."""
    modules = {module_of(file) for file in sources}
    uses: dict[str, set[str]] = {}
    for file, text in sources.items():
        module = module_of(file)
        found = {used_module(module, path, modules) for path in paths_of(text)}
        uses[module] = {used for used in found if used is not None and used != module}
    return uses


def folder_of(module: str) -> str:
    return module.partition("::")[0]


def upward_uses(uses: Mapping[str, set[str]]) -> Iterator[str]:
    for module in uses:
        if module and folder_of(module) not in FOLDERS:
            yield f"{module}: stands in none of the folders"
    for module, others in uses.items():
        for other in others if folder_of(module) in FOLDERS else ():
            if folder_of(other) not in FOLDERS:
                yield f"{module}: uses the crate's root"
            elif FOLDERS.index(folder_of(other)) < FOLDERS.index(folder_of(module)):
                yield f"{module}: uses {other}, which is above it"


def circles(uses: Mapping[str, set[str]]) -> Iterator[str]:
    for module in uses:
        seen: set[str] = set()
        ahead = set(uses[module])
        while ahead:
            other = ahead.pop()
            seen.add(other)
            ahead |= uses.get(other, set()) - seen
        if module in seen:
            yield f"{module}: uses itself by a way around"


def unsafe_outside(sources: Sources) -> Iterator[str]:
    for file, text in sources.items():
        is_unsafe = re.search(r"\bunsafe(_code)?\b", code_of(text)) is not None
        if is_unsafe and folder_of(module_of(file)) != UNSAFE_FOLDER:
            yield f"{file}: unsafe code outside {UNSAFE_FOLDER}"


def touches(path: str, crates: set[str]) -> bool:
    """True when a path leads to sockets, files or clocks, or to a crate that has them."""
    first, *rest = path.split("::")
    if first in crates:
        return True
    return first == "std" and rest[:1] != [] and rest[0] in TOUCHING_MODULES and path not in PURE


def touching_outside(sources: Sources, crates: set[str]) -> Iterator[str]:
    for file, text in sources.items():
        if folder_of(module_of(file)) in TOUCHING_FOLDERS:
            continue
        for path in sorted(paths_of(text)):
            if touches(path, crates):
                yield f"{file}: touches {path}"
            elif path == "std" or (path.endswith("*") and path not in GLOBS):
                yield f"{file}: {path} hides what it names"


def types_twice(sources: Sources) -> Iterator[str]:
    found = [match for text in sources.values() for match in _TYPE.finditer(code_of(text))]
    names = Counter(match[1] or match[2] for match in found)
    yield from (
        f"{name}: {count} types have this name" for name, count in names.items() if count > 1
    )


def riddles(sources: Sources) -> Iterator[str]:
    for file, text in sources.items():
        for riddle in _RIDDLE.finditer(text):
            yield f"{file}: a comment says {riddle[1]}, and not which part"


def faults_of(sources: Sources, crates: set[str]) -> list[str]:
    """The faults that break the rules, a line each.

    Args:
        crates: those that touch sockets, files or clocks.
    """
    uses = uses_of(sources)
    return [
        *upward_uses(uses),
        *circles(uses),
        *unsafe_outside(sources),
        *touching_outside(sources, crates),
        *types_twice(sources),
        *riddles(sources),
    ]


# ---------------------------------------------------------------- the crate


def crate_sources() -> dict[str, str]:
    src = CRATE / "src"
    return {path.relative_to(src).as_posix(): path.read_text() for path in src.rglob("*.rs")}


def touching_crates() -> set[str]:
    """All that the crate depends on, but Python's and those that only reckon; `libc` always."""
    dependencies = tomllib.loads((CRATE / "Cargo.toml").read_text())["dependencies"]
    return {name.replace("-", "_") for name in dependencies} - PURE_CRATES | {"libc"}


def test_the_crate_keeps_its_layers() -> None:
    assert faults_of(crate_sources(), touching_crates()) == []


def test_the_layers_are_those_of_the_crate() -> None:
    """The reading finds what is there: each folder, and that it is used from above."""
    uses = uses_of(crate_sources())
    assert {folder_of(module) for module in uses if module} == set(FOLDERS)
    between = {(folder_of(module), folder_of(other)) for module in uses for other in uses[module]}
    assert between >= set(pairwise(FOLDERS))
    assert "rustix" in touching_crates()
    assert uses["live::acks"] == set()
    assert uses["live::sink_lane"] >= {"live::acks", "live::control"}
    assert uses["mem"] >= {"mem::views", "mem::of_files"}


DOCUMENT: Final = CRATE.parent / "document"
# from above to below; those without a folder of their own are modules
DOCUMENT_LAYERS: Final = (
    *("python", "columns", "shown", "printed", "layout"),
    *("shapes", "scalars", "spelled", "typenames", "written", "items"),
)


def document_faults(sources: Sources) -> list[str]:
    """The same of the crate that reads documents: no unsafe code, no socket, file or clock."""
    found = [f"{file}: unsafe code" for file, text in sources.items() if "unsafe" in code_of(text)]
    for file, text in sources.items():
        found += [f"{file}: touches {path}" for path in paths_of(text) if touches(path, {"libc"})]
    for module, others in uses_of(sources).items():
        for other in others if module else ():
            above = DOCUMENT_LAYERS.index(folder_of(other)) if other else 0
            if not other or above < DOCUMENT_LAYERS.index(folder_of(module)):
                found.append(f"{module}: uses {other or 'the root'}, which is above it")
    return found


def document_sources() -> dict[str, str]:
    src = DOCUMENT / "src"
    return {path.relative_to(src).as_posix(): path.read_text() for path in src.rglob("*.rs")}


def test_the_crate_that_reads_documents_keeps_its_layers() -> None:
    assert document_faults(document_sources()) == []


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ({"items.rs": "use crate::columns::Batch;"}, "items: uses columns, which is above it"),
        ({"scalars.rs": "fn f() { unsafe { g() } }"}, "scalars.rs: unsafe code"),
        ({"columns.rs": "use std::fs::File;"}, "columns.rs: touches std::fs::File"),
        ({"python/objects.rs": "use std::time::Instant;"}, "touches std::time::Instant"),
    ],
)
def test_what_breaks_a_rule_of_it_is_found(planted: dict[str, str], fault: str) -> None:
    sources = document_sources()
    for file, text in planted.items():
        sources[file] = f"{sources[file]}\n{text}\n"
    assert any(fault in each for each in document_faults(sources))


# ---------------------------------------------------------------- sources that break a rule


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ({"mem/lock.rs": "use crate::append::terms::Refusal;"}, "mem::lock: uses append::terms,"),
        ({"batch/apart.rs": "use super::super::live::{acks};"}, "batch::apart: uses live::acks,"),
        ({"append/pen.rs": "fn f() { crate::live::acks::f() }"}, "append::pen: uses live::acks,"),
        ({"live/acks.rs": "use crate::{mem, python::functions as f};"}, "uses python::functions,"),
        ({"mem/mod.rs": "pub use crate::batch::{apart::{self, Cut}};"}, "uses batch::apart, which"),
        ({"live/acks.rs": "use crate::*;"}, "live::acks: uses the crate's root"),
        ({"other/mod.rs": "fn f() {}"}, "other: stands in none of the folders"),
        ({"batch/columns.rs": "fn f() { unsafe { g() } }"}, "unsafe code outside mem"),
        ({"live/acks.rs": "#![allow(unsafe_code)]"}, "unsafe code outside mem"),
        ({"batch/columns.rs": "use std::{cmp, fs::{File}};"}, "touches std::fs::File"),
        ({"batch/columns.rs": "fn f() { ::std::net::bind() }"}, "touches std::net::bind"),
        ({"batch/columns.rs": "use std::time::{Duration, Instant};"}, "touches std::time::Instant"),
        ({"batch/columns.rs": "use std::os::fd as net;"}, "touches std::os::fd"),
        ({"batch/columns.rs": "use std::io::{self, IoSlice};"}, "touches std::io"),
        ({"python/functions.rs": "use rustix::fs;"}, "touches rustix::fs"),
        ({"python/functions.rs": "extern crate libc as plain;"}, "touches libc"),
        ({"batch/columns.rs": "use std::*;"}, "std::* hides what it names"),
        ({"batch/columns.rs": "use std::{self as plain};"}, "std hides what it names"),
        ({"batch/columns.rs": "pub(crate) struct Walk<'a>(&'a u8);"}, "Walk: 2 types have this"),
        ({"batch/columns.rs": "fn f() {\n    enum Refusal {}\n}"}, "Refusal: 2 types have this"),
        ({"live/control.rs": "type Laid = u8;"}, "Laid: 2 types have this name"),
        ({"mem/lock.rs": "/// Whoever holds it."}, "a comment says Whoever, and not which part"),
    ],
)
def test_what_breaks_a_rule_is_found(planted: dict[str, str], fault: str) -> None:
    sources = crate_sources()
    for file, text in planted.items():
        sources[file] = f"{sources.get(file, '')}\n{text}\n"
    assert any(fault in found for found in faults_of(sources, touching_crates()))


def test_a_circle_is_found_wherever_it_leads() -> None:
    sources = {
        "live/a.rs": "use super::b::f;",
        "live/b.rs": "use crate::live::c;",
        "live/c.rs": "fn f() { crate::live::a::f() }",
        "live/d.rs": "use crate::live::a::f;",
    }
    around = [f"live::{name}: uses itself by a way around" for name in "abc"]
    assert faults_of(sources, set()) == around
    parent = {"mem/mod.rs": "mod a; pub use a::F;", "mem/a.rs": "use super::G;"}
    assert len(faults_of(parent, set())) == 2


def test_what_is_no_code_breaks_no_rule() -> None:
    text = """
        //! use crate::live::acks; unsafe
        /* use std::fs; */ const A: &str = "use std::net; \\" unsafe";
        const B: u8 = b'"'; fn f<'a>(_: &'a u8) -> char { '"' } // use rustix::fs;
        use std::{io::IoSlice, time::Duration};
        impl Iterator for X { type Item = u8; }
        impl Iterator for Y { type Item = u8; }
    """
    assert faults_of({"batch/mod.rs": text, "live/acks.rs": "fn acks() {}"}, {"rustix"}) == []
