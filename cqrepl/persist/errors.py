"""The errors of storages."""


class PersistError(Exception):
    """A storage cannot do what was asked."""


class NoRole(PersistError):
    """There is no factory: no host of this process has begun with its group yet."""


class NotLeader(PersistError):
    """This host does not lead the group of a storage, so it writes nothing; or it has come to lead
    no longer while it waited, and it is not known whether hosts have what was written.

    Attributes:
        leader: the id of the host that leads; 0 where that is not known.
        where: its address; empty where that is not known.
    """

    def __init__(self, message: str, leader: int = 0, where: str = "") -> None:
        super().__init__(message)
        self.leader = leader
        self.where = where


class OtherKind(PersistError):
    """A name is that of a storage of another kind; or it makes the same id as another name."""


class NotNext(PersistError):
    """An item has another logical index than the next one.

    Attributes:
        expected, got: logical indexes.
    """

    def __init__(self, storage: str, expected: int, got: int) -> None:
        super().__init__(f"storage {storage!r}: expected an item with index {expected}, got {got}")
        self.expected = expected
        self.got = got


class Gone(PersistError):
    """An item is not there: it was removed, or a reset has taken it, or it is yet to come.

    Attributes:
        first: the logical index of the first item that is there; of the next one where none is.
    """

    def __init__(self, storage: str, index: int, first: int, next_: int) -> None:
        there = f"{first} to {next_ - 1} are there" if first < next_ else "none is there"
        text = f"storage {storage!r}: expected the index of an item, got {index}: {there}"
        super().__init__(text)
        self.first = first


class StorageDamaged(PersistError):
    """A storage has met a record that cannot follow what it has, and takes no more."""
