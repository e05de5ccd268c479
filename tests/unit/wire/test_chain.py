"""The chain over excerpts: vectors, and that each thing it is to notice changes it."""

from array import array
from types import ModuleType

import pytest

from cqrepl.kernel import choose, plain
from cqrepl.kernel.chain import CHAIN_START, extend_chain, has_chains

VECTORS = [
    ([], "00000000000000000000000000000000"),
    ([b""], "08f77a585d4437bf91effcb68bda101e"),
    ([b"a"], "244e4d688a8df233d96f01a8babe26ef"),
    ([b"a", b"b"], "2b1a7cef347f83388b5ca8b4dadccaaa"),
    ([bytes(range(256)) * 3], "d866416062de0a483b7fab8d2304cb9d"),
    ([b"x" * (1 << 17)], "13c08dc50b89cbbda219326ec8ff0952"),
]


def chain_of(payloads: list[bytes], sequence: int = 0, chain: bytes = CHAIN_START) -> bytes:
    data, offsets, lengths = plain.join_payloads(payloads)
    return extend_chain(data, offsets, lengths, sequence, chain)


@pytest.mark.parametrize(("payloads", "expected"), VECTORS, ids=lambda each: str(len(each)))
@pytest.mark.parametrize("kernel", [plain, choose.KERNEL], ids=["plain", "chosen"])
def test_vectors(kernel: ModuleType, payloads: list[bytes], expected: str) -> None:
    data, offsets, lengths = plain.join_payloads(payloads)
    assert kernel.extend_chain(data, offsets, lengths, 0, CHAIN_START).hex() == expected
    if payloads:  # in any number of steps
        first = chain_of(payloads[:1])
        assert chain_of(payloads[1:], 1, first).hex() == expected


def test_what_it_notices() -> None:
    chain = chain_of([b"ab", b"c"])
    others = ([b"ab", b"d"], [b"a", b"bc"], [b"c", b"ab"], [b"ab"], [b"ab", b"c", b""], [b"abc"])
    found = {chain, *map(chain_of, others), chain_of([b"ab", b"c"], 1)}
    assert len(found) == 2 + len(others)


def test_more_excerpts_than_the_interpreter_waits_for() -> None:
    payloads = [b"%d" % n for n in range(5000)]
    chain = CHAIN_START
    for n, payload in enumerate(payloads):
        chain = chain_of([payload], n, chain)
    assert chain_of(payloads) == chain


def test_wrong_arguments() -> None:
    assert has_chains()
    for chain in (b"", bytes(15), bytes(17)):
        with pytest.raises(ValueError, match="16 bytes"):
            chain_of([], 0, chain)
    with pytest.raises(ValueError, match="sequence"):
        chain_of([], -1)
    with pytest.raises(ValueError, match="within the data"):
        extend_chain(b"abc", array("q", [1]), array("q", [3]), 0, CHAIN_START)
    with pytest.raises(ValueError, match="a part of the batch"):
        extend_chain(b"abc", array("q", [1]), array("q"), 0, CHAIN_START)
