"""docs/operations.md tells how a command ends that is to: each row is tried, from either side."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from cqrepl.queue import Queue
from tests.net.test_disk_full import small_file_system
from tests.support.commands import commands
from tests.support.samples import NOON_MS, fill, layout, noon_path
from tests.support.unreadable import made_unreadable

DOCS: Final = Path(__file__).parents[2] / "docs" / "operations.md"
ROW: Final = re.compile(r"^\| `([a-z-]+)` \|.*\| (\d): `(.+?)` \| (\d): `(.+?)` \|$", re.MULTILINE)
# a dialler gives up sooner than after 30 s where no peer comes; elsewhere it may come late
BEFORE: Final = {"no-peer": "from cqrepl.net import dialer; dialer.GIVE_UP_SECONDS = 3.0"}
ROLES: Final = ("sink", "source")

Arguments = dict[str, list[object]]  # of either role, beside the queue


def usual(folder: Path) -> Arguments:
    fill(folder / "q", "FAST_DAILY", {0: 300})
    return {"source": [folder / "q"], "sink": [f"q={folder / 'copy'}"]}


def name(folder: Path) -> Arguments:
    return usual(folder) | {"sink": [f"orders={folder / 'copy'}"]}


def roll_cycle(folder: Path) -> Arguments:
    fill(folder / "copy", "FAST_HOURLY", {0: 5})
    return usual(folder)


def too_long(folder: Path) -> Arguments:
    with Queue.open_for_append(folder / "q", create=layout()) as queue:
        queue.appender().append([b"x" * 5000], NOON_MS)
    limit = ["--max-excerpt", 1000]
    return {"source": [folder / "q", *limit], "sink": [f"q={folder / 'copy'}", *limit]}


def diverged(folder: Path) -> Arguments:
    fill(folder / "copy", "FAST_DAILY", {0: 300})
    content = bytearray(noon_path(folder / "copy").read_bytes())
    last = max(at for at, byte in enumerate(content) if byte)
    content[last] ^= 1
    noon_path(folder / "copy").write_bytes(content)
    return usual(folder)


def damaged(folder: Path) -> Arguments:
    """Before the end, which is looked at already when the source starts."""
    fill(folder / "q", "FAST_DAILY", {0: 300, 1: 5})
    with Queue.open(folder / "q") as queue:
        batch = queue.tailer().next_batch()
        assert batch is not None
        header = batch.offsets[200] - 4
    with noon_path(folder / "q").open("r+b") as store:
        store.seek(header)
        store.write(b"\xff\xff\xff\x3f")
    return {"source": [folder / "q"], "sink": [f"q={folder / 'copy'}"]}


def unreadable(folder: Path) -> Arguments:
    fill(folder / "q", "FAST_DAILY", {0: 300, 1: 5, 2: 5})
    made_unreadable(noon_path(folder / "q", ahead=1))
    return {"source": [folder / "q"], "sink": [f"q={folder / 'copy'}"]}


def same_id(folder: Path) -> Arguments:
    found = usual(folder)
    for each in ROLES:
        found[each] += ["--host-id", 9]
    return found


def other_id(folder: Path) -> Arguments:
    found = usual(folder)
    found["source"] += ["--remote-id", 7]
    return found


ENDINGS: Final[dict[str, Callable[[Path], Arguments]]] = {
    "name": name,
    "roll-cycle": roll_cycle,
    "too-long": too_long,
    "diverged": diverged,
    "damaged": damaged,
    "unreadable": unreadable,
    "disk-full": usual,
    "same-id": same_id,
    "other-id": other_id,
    "no-peer": usual,
}


def rows() -> dict[str, dict[str, tuple[int, str]]]:
    """By row: the exit code of each role, and what it says."""
    return {
        row: {"sink": (int(sink), says), "source": (int(source), source_says)}
        for row, sink, says, source, source_says in ROW.findall(DOCS.read_text())
    }


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The directory for the copy; for one row it is a disk that is too small."""
    if "disk-full" not in request.node.name:
        yield tmp_path
        return
    with small_file_system(tmp_path / "copy", "100k"):
        yield tmp_path


def test_each_row_is_tried() -> None:
    assert list(rows()) == list(ENDINGS)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("row", ENDINGS)
async def test_it_ends_as_it_is_said(row: str, role: str, folder: Path) -> None:
    code, says = rows()[row][role]
    given = ENDINGS[row](folder)
    async with commands(before=BEFORE.get(row, "pass")) as start:
        # the other side only listens, and goes on
        listener = next(each for each in ROLES if each != role)
        other = await start(listener, *given[listener], "--listen", "127.0.0.1:0")
        address = f"127.0.0.1:{await other.port()}"
        if row == "no-peer":
            await other.kill()
        ends = {"sink": "--once", "source": "--until-caught-up"}[role]
        ending = await start(role, *given[role], "--connect", address, ends)
        found = await ending.exit_code()
        assert (found, says in ending.said, "Traceback" in ending.said) == (code, True, False), (
            f"{found}: {ending.said}\nthe other side:\n{other.said}"
        )


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("row", ["same-id", "other-id"])
async def test_one_that_listens_ends_so_too(row: str, role: str, tmp_path: Path) -> None:
    """Its first peer, which goes on dialling, is refused."""
    code, _ = rows()[row][role]
    given = ENDINGS[row](tmp_path)
    async with commands() as start:
        ends = {"sink": "--once", "source": "--until-caught-up"}[role]
        ending = await start(role, *given[role], "--listen", "127.0.0.1:0", ends)
        dialler = next(each for each in ROLES if each != role)
        address = f"127.0.0.1:{await ending.port()}"
        await start(dialler, *given[dialler], "--connect", address)
        assert await ending.exit_code() == code, ending.said
        assert "Traceback" not in ending.said
        (line,) = ending.said.splitlines()[-1:]
        assert re.search(
            r"127\.0\.0\.1:\d+: .*(host id 9|expects host id 7|host id 7 exp)", line
        ), line


BOTH_END: Final = (
    *("name", "diverged"),
    *(pytest.param(row, marks=pytest.mark.long) for row in ("roll-cycle", "too-long", "damaged")),
    pytest.param("unreadable", marks=pytest.mark.long),
)


@pytest.mark.parametrize("row", BOTH_END)
async def test_so_do_both_sides_at_once(row: str, tmp_path: Path) -> None:
    """The one that ends later may find the other one gone, and still knows why nothing came of it:
    neither says that no peer was reached."""
    expected = rows()[row]
    given = ENDINGS[row](tmp_path)
    async with commands() as start:
        source = await start(
            "source", *given["source"], "--listen", "127.0.0.1:0", "--until-caught-up"
        )
        address = f"127.0.0.1:{await source.port()}"
        sink = await start("sink", *given["sink"], "--connect", address, "--once")
        for role, each in (("sink", sink), ("source", source)):
            found = await each.exit_code()
            assert (found, "Traceback" in each.said) == (expected[role][0], False), (
                f"{role}: {found}: {each.said}"
            )
            assert "no peer within" not in each.said
