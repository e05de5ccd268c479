"""The house rules that no linter knows: sizes, names, dead files, counted exceptions.

Numbers of exceptions may only fall: when one is gone, lower the number here.
"""

import ast
import re
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import suite

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500  # of code: docstrings and the comment at the top are not counted
TEST_FILE_LINES = 800
FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "base", "util", "helper"}
# what starts processes, opens sockets or waits for a clock has no place in tests/unit
NOT_IN_UNIT = {"asyncio", "multiprocessing", "pty", "socket", "socketserver", "subprocess", "trio"}
NOT_CALLED_IN_UNIT = re.compile(
    r"sleep|fork|forkpty|posix_spawn\w*|exec[lv]\w*|spawn\w*|system|popen"
)
COMPRESSING = {"gzip", "bz2", "lzma", "zstandard", "lz4", "snappy", "brotli"}
UNPACKING = "wire.objects.compressed"
# files that are allowed to be longer, with the length they must not pass
LONG_FILES: dict[str, int] = {}
# a docstring begins with its subject or a verb, and no component is left unnamed
RIDDLES = re.compile(r"(What|Who(?!le)|Whether|That|How|Where)")
UNNAMED = re.compile(r"\b(nobody|somebody|someone|whoever|whomever|anybody)\b", re.IGNORECASE)
# imports that close a circle of modules
CLOSING_ARROWS = {
    # a value may be a dataclass, whose fields are values: one recursion over two files
    ("wire.objects.object_writer", "wire.objects.annotated"),
}
NOQA_MAX = 1
NO_COVER_MAX = 0
TYPE_IGNORE_MAX = 2  # construct has no types


def tracked(*suffixes: str) -> list[Path]:
    """Files that git knows or would take in."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the files of the project are not known")
    paths = (ROOT / name for name in listed.stdout.splitlines())
    return [path for path in paths if path.suffix in suffixes and path.is_file()]


_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Named:
    """A module, class or function: its lines are counted without its docstring."""

    kind: str
    name: str
    line: int
    lines: int
    docstring: str | None
    is_top: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the tests below ask of a file, which is parsed once.

    `imported` has full names, of modules and of what is taken from them; `froms` the names that are
    taken from each module; `called` the last name of everything that is called, or handed on by its
    dotted name.
    """

    names: tuple[Named, ...]
    imported: frozenset[str]
    froms: tuple[tuple[str, tuple[str, ...]], ...]
    called: frozenset[str]


@cache
def facts(path: Path) -> Facts:
    return facts_of(path.read_text())


def facts_of(text: str) -> Facts:
    tree = ast.parse(text)
    names, imported, froms, called = [], set(), [], set()
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            name, first, last = "", 1, 0
            if not isinstance(node, ast.Module):
                name, first, last = node.name, node.lineno, node.end_lineno or 0
            said = ast.get_docstring(node, clean=False)
            lines = last - first + 1 - (0 if said is None else len(said.splitlines()))
            line = node.body[0].lineno if said else first
            names.append(Named(type(node).__name__, name, line, lines, said, id(node) in top))
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            taken = tuple(alias.name for alias in node.names)
            imported |= {node.module, *(f"{node.module}.{name}" for name in taken)}
            froms.append((node.module, taken))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            called.add(node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
    return Facts(tuple(names), frozenset(imported), tuple(froms), frozenset(called))


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def product_files() -> list[Path]:
    return [p for p in tracked(".py") if p.relative_to(ROOT).parts[0] in ("wire", "cqrepl")]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_are_short() -> None:
    for path in tracked(".py"):
        is_test = path.relative_to(ROOT).parts[0] == "tests"
        limit = LONG_FILES.get(named(path), TEST_FILE_LINES if is_test else FILE_LINES)
        lines = code_lines(path.read_text(), facts(path))
        assert lines <= limit, f"{named(path)} has {lines} lines, at most {limit}: split it"


def code_lines(text: str, found: Facts) -> int:
    """Lines of a module without its docstrings, and without the comment that it begins with."""
    lines = text.splitlines()
    header = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    said = (each.docstring for each in found.names)
    return len(lines) - header - sum(len(each.splitlines()) for each in said if each is not None)


def test_docstrings_and_the_header_are_no_code() -> None:
    text = (
        '# header\n"""One\n\ntwo."""\nA = 1\n\n\ndef f() -> int:\n    """Says."""\n    return 1\n'
    )
    assert code_lines(text, facts_of(text)) == 5


# a Spark worker loads `points`, far from these folders
SENDERS = {"tests/support/processes.py", "tests/spark/points.py"}


def test_signals_go_by_way_of_what_bears_an_end_meanwhile() -> None:
    """A process may end between any look at it and a signal: only `processes.send` bears that."""
    for path in tracked(".py"):
        if path.relative_to(ROOT).parts[0] == "tests" and named(path) not in SENDERS:
            found = re.search(r"\bos\.kill\((?!os\.getpid\(\))", path.read_text())
            assert found is None, f"{named(path)}: take `send` of tests/support/processes.py"


def test_the_tiers_of_the_suite_name_what_is_there() -> None:
    """A name of what is gone would leave its tests out of one tier, or take them twice."""
    quick, slow, smokes, both = suite.QUICK, suite.SLOW, suite.SMOKES, suite.ON_BOTH
    for name in (*quick, *slow, *smokes, *both, *suite.QUICK_ON_BOTH, *suite.COVERED, suite.FUZZED):
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), f"{name} is not there"
        assert f"def {test}" in (ROOT / path).read_text() if test else True, f"{name} is not there"
    assert all(name.startswith(quick) for name in slow)
    assert not any(name.startswith(quick) for name in smokes)


def test_functions_are_short() -> None:
    for path in tracked(".py"):
        for each in facts(path).names:
            if each.kind not in ("Module", "ClassDef"):
                text = f"{named(path)}: {each.name} has {each.lines} lines"
                assert each.lines <= FUNCTION_LINES, text


def test_modules_are_named_for_what_they_hold() -> None:
    for path in tracked(".py"):
        assert path.stem not in FORBIDDEN_NAMES, f"{named(path)} says nothing"


# a core and its shell, and what every folder may have of its own
SHARED_MODULE_NAMES = {"__init__", "__main__", "settings", "errors"}
PAIRED_FOLDERS = ({"cqrepl/protocol", "cqrepl/replicator"},)
# a command's options and its work have its name, which may be that of what it runs
COMMAND_FOLDERS = {"cqrepl/cli", "cqrepl/commands"}
# participles are what is done, not what is: these name a thing, or what is public under the name
NAMES_IN_ING = {"blocking", "greeting", "listing", "mapping", "recording", "routing", "staging"}


def test_no_two_modules_have_one_name() -> None:
    folders: dict[str, set[str]] = {}
    for path in product_files():
        if path.stem not in SHARED_MODULE_NAMES:
            folders.setdefault(path.stem, set()).add(named(path.parent))
    for name, where in folders.items():
        rooms = where - COMMAND_FOLDERS
        assert len(rooms) < 2 or rooms in PAIRED_FOLDERS, f"{name}.py stands in {sorted(where)}"


def test_modules_are_nouns() -> None:
    for path in product_files():
        assert not path.stem.endswith("ing") or path.stem in NAMES_IN_ING, named(path)


def test_no_two_classes_of_a_package_have_one_name() -> None:
    seen: dict[tuple[str, str], Path] = {}
    for path in product_files():
        package = path.relative_to(ROOT).parts[0]
        for each in facts(path).names:
            if each.kind == "ClassDef":
                other = seen.setdefault((package, each.name), path)
                assert other == path, f"{each.name} is in {named(other)} and in {named(path)}"


def test_modules_and_public_names_are_documented() -> None:
    for path in product_files():
        for each in facts(path).names:
            what = each.name or "the module"
            is_public = not each.name.startswith("_") and (each.is_top or each.kind == "Module")
            undocumented = is_public and not each.docstring and not _is_plain(path, each)
            assert not undocumented, f"{named(path)}: {what} has no docstring"


def test_docstrings_begin_with_a_subject_or_a_verb() -> None:
    for path in tracked(".py"):
        for each in facts(path).names:
            text = (each.docstring or "").lstrip()
            first = f"{named(path)}:{each.line}: {text.partition(chr(10))[0]}"
            assert not RIDDLES.match(text), first


def test_texts_of_the_product_name_the_component() -> None:
    """In docstrings, comments and messages; names of constants are no text."""
    for path in product_files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = UNNAMED.search(re.sub(r"\b\w*_\w+\b|\b[A-Z]+\b", "", line))
            assert found is None, f"{named(path)}:{number}: {line.strip()}"


def _is_plain(path: Path, each: Named) -> bool:
    """The kernel's functions are documented where they are offered, in cqrepl/kernel/batch.py."""
    return named(path) in ("cqrepl/kernel/plain.py", "cqrepl/kernel/plainruns.py") or (
        each.kind == "ClassDef" and named(path) == "wire/codes.py"
    )


def test_nothing_is_dead() -> None:
    """Every module is imported somewhere, or is an entry point."""
    files = tracked(".py")
    texts = {path: path.read_text() for path in (*files, ROOT / "pyproject.toml")}
    importers: dict[str, set[Path]] = {}
    for path in files:
        for name in facts(path).imported:
            importers.setdefault(name, set()).add(path)
    for path in product_files():
        module = module_of(path)
        is_entry = path.stem in {"__init__", "__main__", "conftest"}
        is_imported = bool(importers.get(module, set()) - {path})
        is_used = (
            is_entry
            or is_imported
            or any(module in text for other, text in texts.items() if other != path)
        )
        assert is_used, f"{module} is not used"


def arrows() -> dict[str, set[str]]:
    """Module of the product -> the modules that it imports anywhere, `TYPE_CHECKING` included.

    The table of public names in `cqrepl/__init__.py` is left out: it leads to all that is public.
    """
    files = {
        module_of(path): facts(path)
        for path in product_files()
        if named(path) != "cqrepl/__init__.py"
    }
    # `from package import module` names both, and leads to the module alone
    found: dict[str, set[str]] = {}
    for module, each in files.items():
        taken = set(each.imported) & files.keys()
        found[module] = taken - {one.rpartition(".")[0] for one in taken} - {module} | {
            package
            for package, names in each.froms
            if package in files
            if any(f"{package}.{name}" not in files for name in names)
        }
    return found


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle of imports, in its order; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(each) for each in error.args[1]]
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = arrows()
    for start, end in CLOSING_ARROWS:
        assert end in graph[start], f"{start} does not import {end} any more: take it out"
        graph[start].remove(end)
    assert not circle_in(graph)
    for start, end in CLOSING_ARROWS:
        closed = graph | {start: graph[start] | {end}}
        assert circle_in(closed), f"{start} -> {end} closes no circle any more: take it out"


def test_no_packages_import_each_other_in_a_circle() -> None:
    """A package is what stands directly in `cqrepl`. None of them imports the module that puts a
    host together back, and the rooms above the replicator are unknown to it."""
    packages: dict[str, set[str]] = {}
    for module, taken in arrows().items():
        here = ".".join(module.split(".")[:2])
        there = {".".join(each.split(".")[:2]) for each in taken if each.startswith("cqrepl.")}
        packages.setdefault(here, set()).update(there - {here})
    assert not circle_in(packages)
    for package in ("cqrepl.replicator", "cqrepl.cluster", "cqrepl.status"):
        assert "cqrepl.host" not in packages[package]
    assert not packages["cqrepl.replicator"] & {"cqrepl.cluster", "cqrepl.status"}


def test_unit_tests_start_no_process_open_no_socket_and_do_not_sleep() -> None:
    """Nor do the helpers that unit tests import. `tests/unit/conftest.py` sees what is called."""
    files = {
        module_of(path): facts(path)
        for path in tracked(".py")
        if path.relative_to(ROOT).parts[0] == "tests"
    }
    left = [module for module in files if module.startswith("tests.unit.")]
    assert left
    seen = set(left)
    while left:
        module = left.pop()
        taken = files[module].imported
        found = {name.partition(".")[0] for name in taken} & NOT_IN_UNIT
        assert not found, f"{module} imports {sorted(found)}"
        wrong = sorted(name for name in files[module].called if NOT_CALLED_IN_UNIT.fullmatch(name))
        assert not wrong, f"{module} calls {wrong}"
        left += (taken & files.keys()) - seen
        seen |= taken & files.keys()


def test_t17_nothing_can_expand_what_is_compressed() -> None:
    """Threat T17. A few bytes of a peer's cannot become many where nothing knows how.

    One module does, for documents that a user asks to be unpacked, to a limit: what does not ask
    cannot reach it.
    """
    asking = {named(path) for path in product_files() if "unpack=True" in path.read_text()}
    assert asking == {"cqrepl/typed/documentfields.py"}
    reaching = {module for module, taken in arrows().items() if UNPACKING in taken}
    assert reaching == {"wire.objects.documents", "wire.objects.object_reader"}
    for path in product_files():
        if module_of(path) == UNPACKING:
            continue
        found = {name.partition(".")[0] for name in facts(path).imported} & COMPRESSING
        assert not found, f"{named(path)} imports {sorted(found)}"
        of_zlib = {name for name in facts(path).called if name.startswith("decompress")}
        assert not of_zlib, f"{named(path)} calls {sorted(of_zlib)}"
    crates = {crate["name"] for crate in locked_crates("native/Cargo.lock")}
    assert not crates & {
        "flate2",
        "miniz_oxide",
        "zstd",
        "lz4",
        "lz4_flex",
        "snap",
        "brotli",
        "xz2",
    }


@pytest.mark.parametrize("lock", ["native/Cargo.lock", "native/fuzz/Cargo.lock"])
def test_t24_crates_are_locked_with_their_hashes(lock: str) -> None:
    """Threat T24. Each is of the one registry, or in this repository."""
    crates = locked_crates(lock)
    assert crates
    for crate in crates:
        if "source" in crate:
            assert crate["source"] == "registry+https://github.com/rust-lang/crates.io-index", crate
            assert re.fullmatch("[0-9a-f]{64}", crate.get("checksum", "")), crate
        else:
            assert crate["name"].startswith("cqrepl-"), crate


def test_t24_cargo_builds_what_is_locked() -> None:
    assert 'args=["--locked"]' in (ROOT / "setup.py").read_text()
    for file in (ROOT / "Makefile", ROOT / "native/fuzz/run"):
        text = file.read_text()
        for line in re.findall(r"^.*\bcargo (?:\+\w+ )?(?:build|test|clippy|run)\b.*$", text, re.M):
            is_locked = "--locked" in line or "$(CRATE)" in line or "--version" in line
            assert is_locked, f"{named(file)}: {line.strip()}"


def test_t24_python_packages_are_named_not_fetched_from_an_address() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [
        project["build-system"]["requires"],
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    for wanted in (each for group in groups for each in group):
        assert not re.search("@|://|git\\+", wanted), wanted
        assert re.search("[<>=]=", wanted), f"{wanted}: expected a least version"


def locked_crates(lock: str) -> list[dict[str, str]]:
    packages: list[dict[str, str]] = tomllib.loads((ROOT / lock).read_text())["package"]
    return packages


def test_exceptions_are_counted() -> None:
    text = "\n".join(path.read_text() for path in product_files())
    assert len(re.findall(r"# noqa", text)) <= NOQA_MAX
    assert len(re.findall(r"pragma: no cover", text)) <= NO_COVER_MAX
    assert len(re.findall(r"type: ignore", text)) <= TYPE_IGNORE_MAX
    assert not re.findall(r"\bTODO\b(?!\s*\(#\d+\))", text), "a TODO needs an issue number"
    assert "NotImplementedError" not in text
    assert not re.findall(r"except Exception|except:", text)


def test_what_is_left_out_of_a_check_has_its_reason_beside_it_or_above() -> None:
    marker = re.compile(r"#\s*(noqa: [A-Z\d, ]+|type: ignore\[[^\]]*\]|pragma: no \w+)")
    for path in tracked(".py", ".pyi"):
        above = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = marker.search(line)
            is_bare = found is not None and not marker.sub("", line[found.start() :]).strip(" #")
            where = f"{path.relative_to(ROOT)}:{number}"
            assert not is_bare or above.strip().startswith("#"), f"{where}: without a reason"
            above = line
    skips = re.compile(r"(mark\.skip(if)?|mark\.xfail|importorskip)\((?P<given>[^()]*)\)")
    for path in tracked(".py"):
        for each in skips.finditer(path.read_text()):
            text = f"{path.relative_to(ROOT)}: {each[0]}: without a reason"
            assert "reason=" in each["given"] or path.name == "test_tidy.py", text


def test_no_private_address_or_path_of_a_machine() -> None:
    for path in tracked(".py", ".md", ".toml", ".java", ".xml", ".json"):
        if "vectors" in path.parts:
            continue
        text = path.read_text()
        found = re.findall(r"/(?:root|home)/\w+", text)
        assert not found, f"{named(path)}: {found[:3]}"
