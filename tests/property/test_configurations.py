"""A configuration is read, or refused with one line, whatever it holds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.config.clusterfile import read_cluster
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import in_effect, plan_host
from tests.support.clusters import FULL, NEWER_PAGE, OLDER_PAGE

PAGES = (FULL, OLDER_PAGE, NEWER_PAGE)
# what has a meaning in YAML, and what stands in a configuration
PIECES = (
    *"{}[],:?-&*!|>'\"%@`#~=<\n\t \\\x00\x85\ufeff",
    *("...", "---", "<<", "!!", "&a", "*a", "? ", "- ", ": ", "\n  ", "null", "\r\n", "é", "𝄞"),
    *("hostId", "cluster:", "queues: ", "1", "-1", "0x10", "1e3", "127.0.0.1:1", "!Queue"),
)


def problem_of(data: bytes) -> str | None:
    """The error of a configuration, as any of its hosts has it; None where there is no error."""
    try:
        config = read_cluster(data, "c.yaml")
        process = in_effect(config, {}, {})
        for host_id in config.hosts:
            plan_host(config, host_id, process)
    except ConfigError as error:
        return str(error)
    return None


def check(data: bytes) -> None:
    problem = problem_of(data)
    if problem is not None:
        assert problem.startswith("c.yaml:")
        assert "\n" not in problem
        assert len(problem) < 500
        assert problem.isprintable()


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    check(data)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_arbitrary_pieces(text: str) -> None:
    check(text.encode())


@given(st.sampled_from(PAGES), st.integers(0, 1 << 32))
def test_pages_with_a_few_changes(page: str, seed: int) -> None:
    """Pieces are put in, taken out, doubled and exchanged."""
    draw = random.Random(seed)
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(page) + 1)
        end = min(len(page), at + draw.randrange(12))
        piece = draw.choice([draw.choice(PIECES), "", page[at:end] * 2])
        page = page[:at] + piece + page[end:]
    check(page.encode())


@pytest.mark.parametrize("piece", ["[", "{", "- ", "? ", "{a: ", "[[", "!a ", "&a [", "a:\n ", "'"])
def test_what_is_repeated_without_end(piece: str) -> None:
    check((piece * 20_000).encode())


@pytest.mark.parametrize(
    "text",
    ["a" * 200_000, "a: " + "b " * 100_000, "#" * 200_000, "\n" * 200_000, "{" + "},{" * 50_000],
)
def test_what_is_long(text: str) -> None:
    check(text.encode())
