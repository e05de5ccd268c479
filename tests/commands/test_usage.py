"""Mistakes of users on the command line: each gives exit code 2, and a line that says what is
wrong."""

import builtins
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from cqrepl import __main__ as entries
from cqrepl.cli.main import cli
from tests.support.invoke import Invoke

LISTEN = ("--listen", "127.0.0.1:0")
TWO = ("--connect", "h:1", "--connect", "h:2")
IDS = ("--remote-id", "8", "--remote-id", "9")
ROLES = ("source", "sink")


@pytest.mark.parametrize("command", ["", "source", "sink", "demo"])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(invoke: Invoke, command: str, option: str) -> None:
    result = invoke(*command.split(), option)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
    assert result.stderr == ""
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


@pytest.mark.parametrize("role", ROLES)
def test_help_says_what_has_to_be_known(invoke: Invoke, role: str) -> None:
    text = " ".join(invoke(role, "--help").stdout.split())
    assert "The dialler's numbers rule both sides" in text
    assert "at least 500ms" in text
    for option in ("--listen", "--connect", "--host-id", "--remote-id", "--max-excerpt"):
        assert option in text
    for default in {"source": ["1", "20s", "40s", "16MiB"], "sink": ["2", "FAST_DAILY"]}[role]:
        assert f"[default: {default}]" in text.replace("; 1<=x", "")
    if role == "sink":
        assert "from it, the end of the stream between two messages is taken as orderly" in text


def test_help_lists_exit_codes(invoke: Invoke) -> None:
    assert invoke().exit_code == 2
    text = " ".join(invoke("--help").stdout.split())
    for code in ("0 done", "1 every queue stopped", "2 usage", "3 port in use", "4 damaged"):
        assert code in text
    assert "5 refused" in text
    assert "130 interrupted" in text


def test_every_option_has_a_help_text() -> None:
    for name, command in cli.commands.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name != "count":
                assert parameter.help, f"{name} {parameter.opts}"


WRONG: list[tuple[list[str], str]] = [
    ([], "an address to listen on (listen) or one to connect to (connect) expected, none came"),
    ([*LISTEN, "--connect", "127.0.0.1:1"], "one to connect to (connect) expected, both came"),
    (["--connect", "h:1", "--connect", "h:2"], "with 2 --connect as many --remote-id expected"),
    ([*TWO, "--remote-id", "8"], "the same order, each another; 8 came"),
    ([*TWO, "--remote-id", "8", "--remote-id", "8"], "each another; 8, 8 came"),
    ([*TWO, *IDS, "--remote-id", "10"], "each another; 8, 9, 10 came"),
    (["--connect", "h:1", "--connect", "h:1", *IDS], "each host expected, h:1 came twice"),
    ([*TWO, *IDS, *LISTEN], "to listen on or to connect to expected, both came"),
    ([*LISTEN, "--listen", "here"], "HOST:PORT expected, 'here' came"),
    (["--listen", "here"], "HOST:PORT expected, 'here' came"),
    (["--connect", "here:99999"], "a port from 0 to 65535 expected"),
    (["--listen", "::1:80"], "[HOST]:PORT expected"),
    ([*LISTEN, "--host-id", "0"], "a host id from 1 to 127 expected, 0 came"),
    ([*LISTEN, "--host-id", "128"], "a host id from 1 to 127 expected, 128 came"),
    ([*LISTEN, "--host-id", "x"], "'x' is not a valid integer"),
    ([*LISTEN, "--remote-id", "-1"], "a host id from 1 to 127 expected, -1 came"),
    (["--connect", "h:1", "--remote-id", "8", "--remote-id", "9"], "expects one remote id"),
    ([*LISTEN, "--heartbeat-interval", "499ms"], "at least 500 ms expected, 499 came"),
    ([*LISTEN, "--heartbeat-timeout", "20s"], "above the interval 20000 ms expected, 20000 came"),
    (
        [*LISTEN, *["--heartbeat-interval", "500ms", "--heartbeat-timeout", "999ms"]],
        "1000 ms expected",
    ),
    ([*LISTEN, "--heartbeat-interval", "20"], "a time such as 500ms, 20s, 1m or 3d expected"),
    ([*LISTEN, "--max-excerpt", "0"], "bytes expected, 0 came"),
    ([*LISTEN, "--max-excerpt", "1GiB"], "bytes expected, 1073741824 came"),
    ([*LISTEN, "--max-excerpt", "lots"], "a size such as 16MiB, 10GB or 65536 expected"),
    ([*LISTEN, "--wire-shape", "round"], "'round' is not one of"),
    ([*LISTEN, "--nonsense"], "No such option"),
]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_arguments_that_do_not_fit(
    invoke: Invoke, queue: Path, role: str, arguments: list[str], message: str
) -> None:
    result = invoke(role, queue, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) <= 4


@pytest.mark.parametrize(("role", "ends"), [("source", "--until-caught-up"), ("sink", "--once")])
def test_what_ends_by_itself_dials_one_peer(
    invoke: Invoke, queue: Path, role: str, ends: str
) -> None:
    result = invoke(role, queue, *TWO, *IDS, ends)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.endswith("2 came: run one command for each")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "text", ["../x=DIR", "a/b=DIR", "=DIR", "x y=DIR", ".=DIR", "..", "/", "-x=DIR", "x="]
)
def test_bad_names(invoke: Invoke, queue: Path, role: str, text: str) -> None:
    result = invoke(role, *LISTEN, "--", text.replace("DIR", str(queue)))
    assert result.exit_code == 2
    assert "expected" in result.stderr


@pytest.mark.parametrize("role", ROLES)
def test_same_name_twice(invoke: Invoke, queue: Path, role: str) -> None:
    other = queue.parent / "other" / "q"
    result = invoke(role, queue, other, *LISTEN)
    assert result.exit_code == 2
    assert "two queues have the same name: give one another, NAME=QUEUE_DIR" in result.stderr


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("other", ["DIR", "DIR/../DIR_NAME", "LINK"])
def test_one_directory_under_two_names(invoke: Invoke, queue: Path, role: str, other: str) -> None:
    link = queue.parent / "link"
    link.symlink_to(queue)
    other = other.replace("DIR_NAME", queue.name).replace("DIR", str(queue))
    result = invoke(role, f"a={queue}", f"b={other.replace('LINK', str(link))}", *LISTEN)
    assert result.exit_code == 2
    assert "a directory of its own expected for queue 'b'" in result.stderr
    assert "which queue 'a' has" in result.stderr


def test_no_ack_excludes_until_caught_up(invoke: Invoke, queue: Path) -> None:
    result = invoke("source", queue, *LISTEN, "--no-ack", "--until-caught-up")
    assert result.exit_code == 2
    assert "--until-caught-up needs acknowledgements" in result.stderr


@pytest.mark.parametrize("name", ["WEEKLY", "NOBODYS", "fast_daily", ""])
def test_roll_cycle_of_a_sink(invoke: Invoke, tmp_path: Path, name: str) -> None:
    result = invoke("sink", tmp_path / "copy", *LISTEN, "--roll-cycle", name)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert name in result.stderr
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("role", ROLES)
def test_same_id_on_both_sides(invoke: Invoke, queue: Path, role: str) -> None:
    result = invoke(role, queue, *LISTEN, "--host-id", "7", "--remote-id", "7")
    assert result.exit_code == 5
    assert result.stderr == (
        f"cqrepl {role}: host id 7 is this side's own and the remote id: they must differ\n"
    )
    # the other side is expected to have the other one's usual id
    own = {"source": "2", "sink": "1"}[role]
    assert invoke(role, queue, "--connect", "127.0.0.1:1", "--host-id", own).exit_code == 5


HUGE = "9" * 24
NUMBERS: list[tuple[str, str]] = [
    *((f"append Q --rate {text}", "0.001<=x<=1000000000") for text in ("nan", "inf", "1e-300")),
    *((f"append Q --wait-for-seconds {text}", "0<=x<=86400") for text in ("nan", "-inf", HUGE)),
    *((f"init Q --epoch {text}", "<=x<=253370764800000") for text in (HUGE, f"-{HUGE}", "1e3")),
    *((f"bench latency --seconds {text}", "0<x<=3600") for text in ("nan", "inf")),
    (f"bench append --count {HUGE}", "1<=x<=1000000000000"),
    (f"bench append --rounds {HUGE}", "1<=x<=1000"),
    (f"bench append --batch {HUGE}", "1<=x<=1000000"),
    ("bench append --size 999999999999999GB", "a size of at most 1 GiB expected"),
    *((f"demo --count {text}", "1<=x<=1000000000000") for text in (HUGE, "0", "x")),
    ("demo --size 1.5", "1.5"),
    ("demo --size 2GiB", "a size of at most 1 GiB expected, '2GiB' came"),
    ("sink Q --listen :0 --touch-ahead 999999999999999GB", "a size of at most 1048576 GiB"),
]


@pytest.mark.parametrize(("line", "expected"), NUMBERS)
def test_numbers_that_no_command_can_use(
    invoke: Invoke, queue: Path, line: str, expected: str
) -> None:
    result = invoke(*[queue if word == "Q" else word for word in line.split()])
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert expected in said or "is not a valid integer" in said
    assert result.stdout == ""


@pytest.mark.parametrize("text", ["0.001", "1e9", "250.5"])
def test_numbers_within_limits(text: str) -> None:
    rate = next(each for each in cli.commands["append"].params if each.name == "rate")
    assert rate.type.convert(text, rate, None) == float(text)


@pytest.mark.parametrize(("command", "option"), [("cqrepl", "--version"), ("wire-dump", "-h")])
def test_installed_commands_have_help_and_version(command: str, option: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name(command), option], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert ("Usage" if option == "-h" else "cqrepl 0.") in done.stdout


@pytest.mark.parametrize("entry", [entries.main, entries.wire_dump])
def test_ctrl_c_while_a_command_is_still_loaded(
    entry: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = builtins.__import__

    def interrupted(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("cqrepl.cli"):
            raise KeyboardInterrupt
        return load(name, *rest, **more)

    monkeypatch.setattr(entries, "end_at_once", lambda code: None)  # this process goes on
    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as caught:
        entry()
    assert caught.value.code == 130


def test_who_is_to_lead_is_who_is_told(invoke: Invoke) -> None:
    result = invoke("promote", "orders", "--to", "3", "--host-id", "2")
    assert result.exit_code == 2
    assert "expected --host-id 3, the host that is to lead (--to), got 2" in result.stderr
