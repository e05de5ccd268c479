"""Java reckons the same partition of a key, by binary wire and CRC-32 of its own."""

from collections.abc import Callable, Sequence

import pytest

from cqrepl.routing import key_bytes, partition_of
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.partitionkeys import byte_keys, texts, whole_numbers

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]
PARTITIONS = 1009
KEYS: dict[str, tuple[Sequence[object], Callable[[object], bytes]]] = {
    "text": (texts(), lambda key: str(key).encode()),
    "number": (whole_numbers(), lambda key: str(key).encode()),
    "bytes": (byte_keys(), lambda key: key if isinstance(key, bytes) else b""),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_has_the_same_partition_in_java(java: JavaQueue, kind: str) -> None:
    keys, told = KEYS[kind]
    stdin = [f"{kind} {told(key).hex()}" for key in keys]
    answer = java.call("partition", PARTITIONS, stdin=stdin)
    assert answer.exit == 0, answer
    for key, line in zip(keys, answer.lines, strict=True):
        assert line["wire"] == key_bytes(key).hex()
        assert line["partition"] == partition_of(key, PARTITIONS)
