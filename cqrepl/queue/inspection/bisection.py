"""Halving: the first place at which two things differ that are equal before it.

Theory of operation. Two copies that are equal up to a place are equal up to every earlier one. So
the first difference among n places costs log n questions. The search does not know what answers
them: a peer at the other end of a connection, a chain that is read from a file, or bytes in memory.
"""


class Bisection:
    """One search over the places 0 to `last`: at the last one they are known to differ.

    Ask for `middle` until it is None, and tell with `take` whether both are equal up to there, that
    place included. Then `first` is the first place at which they differ.
    """

    def __init__(self, last: int) -> None:
        self._equal, self.first = -1, last

    @property
    def middle(self) -> int | None:
        """The place to look at next; None once it is found."""
        if self.first - self._equal <= 1:
            return None
        return (self._equal + self.first) // 2

    @property
    def equal_before(self) -> int:
        """Up to here, this place excluded, both are known to be equal."""
        return self._equal + 1

    def take(self, *, is_equal: bool) -> None:
        """Takes the answer for the middle: are both equal up to there?"""
        middle = self.middle
        assert middle is not None
        if is_equal:
            self._equal = middle
        else:
            self.first = middle


def first_difference(one: bytes | memoryview, other: bytes | memoryview) -> int | None:
    """Offset of the first byte that differs; the shorter length where one is a prefix."""
    if one == other:
        return None
    search = Bisection(min(len(one), len(other)))
    while (middle := search.middle) is not None:
        part = slice(search.equal_before, middle + 1)
        search.take(is_equal=one[part] == other[part])
    return search.first
