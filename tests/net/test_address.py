"""Addresses as people write them, and names of queues."""

from pathlib import Path

import pytest

from cqrepl.net.address import Address
from cqrepl.replicator.queuestate.queues import named


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:4000", "::1", 4000),
        ("[fe80::1%lo]:1", "fe80::1%lo", 1),
        ("a-host.example:080", "a-host.example", 80),
    ],
)
def test_good_address(text: str, host: str, port: int) -> None:
    address = Address.parse(text)
    assert address == Address(host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "host", "host:", ":80", "80", "host:-1", "host:+1", "host: 1", "host:1x"),
        *("host:65536", "host:99999999999999999999", "::1:80", "host:\u0661", "host:1:2", "h:1\n"),
    ],
)
def test_bad_address_says_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        Address.parse(text)
    assert "\n" not in str(caught.value)


def test_names_of_directories(tmp_path: Path) -> None:
    assert named(["/a/one", Path("/b/two/")]) == {"one": Path("/a/one"), "two": Path("/b/two")}
    assert named({"n": "/a/one"}) == {"n": Path("/a/one")}
    assert list(named([Path()])) == [Path().absolute().name]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "/abs", "a/b", "a\\b", "-a", ".a", "_a", "a b", "a\0b", "a\n"),
        *("a" * 129, "\uff0fx", "caf\u00e9", "a:b", "a=b", "~"),
    ],
)
def test_hostile_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        named({name: "/a"})
    assert "\n" not in str(caught.value)


def test_longest_name() -> None:
    assert list(named({"a" * 128: "/a"})) == ["a" * 128]


def test_same_name_twice() -> None:
    with pytest.raises(ValueError, match="two queues are named 'q'"):
        named(["/a/q", "/b/q"])


def test_no_queue() -> None:
    with pytest.raises(ValueError, match="at least one"):
        named([])


def test_single_text_is_no_list() -> None:
    with pytest.raises(ValueError, match="a list of queue directories"):
        named("/a/q")
