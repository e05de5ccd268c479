"""The hosts that have a copy of each group, by rendezvous hashing: each host computes the same.

The hosts of a group are those with the greatest hashes of (map set, group, host), in that order. So
a host that comes or goes changes no more groups than it must. Where zones are named, a group has
two copies in one zone only once it has one in each.
"""

import hashlib
from collections.abc import Iterable, Mapping


def rendezvous(map_set: str, group: int, hosts: Iterable[int]) -> list[int]:
    """The hosts in the order of a group.

    >>> rendezvous("orders", 0, [1, 2, 3]), rendezvous("orders", 0, [1, 3])
    ([2, 3, 1], [3, 1])
    """
    return sorted(hosts, key=lambda host: (-_weight(map_set, group, host), host))


def place(
    map_set: str, group: int, hosts: Iterable[int], copies: int, zones: Mapping[int, str]
) -> list[int]:
    """The hosts that have a copy, at most so many, in their order."""
    order = rendezvous(map_set, group, hosts)
    found: list[int] = []
    while order and len(found) < copies:
        used = [zones.get(each, "") for each in found]
        best = min(order, key=lambda host: used.count(zones.get(host, str(host))))
        order.remove(best)
        found.append(best)
    return found


def _weight(map_set: str, group: int, host: int) -> int:
    digest = hashlib.sha256(f"{map_set}/{group}/{host}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
