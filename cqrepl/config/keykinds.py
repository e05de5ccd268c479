"""A key of the file of a cluster, and a mapping of keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from cqrepl.config.valuekinds import ANYTHING, ValueKind

VARIABLE_PREFIX: Final = "CQREPL_"


class _Required(Enum):
    REQUIRED = "required"


REQUIRED: Final = _Required.REQUIRED  # as the default of a key that has to be there


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a mapping.

    Args:
        says: what it means, for people.
        default: its value where it is not there; REQUIRED where it has to be.
        is_used: false for what only a JVM can do: it is accepted, and has no effect.
        is_live: a host that runs takes on another value, with `cqrepl reload`.
        tag: the type that the value may be marked with.
        prefix: what stands before its name in that of its variable.
    """

    name: str
    kind: ValueKind
    says: str
    default: object = None
    is_used: bool = True
    is_live: bool = False
    tag: str | None = None
    prefix: str = ""

    @property
    def variable(self) -> str:
        """The environment variable of a key below `cqrepl`."""
        return VARIABLE_PREFIX + self.prefix + re.sub(r"([A-Z])", r"_\1", self.name).upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The keys of one kind of mapping.

    Args:
        title: how errors call the mapping.
        tags: the types that it may be marked with.
    """

    title: str
    tags: frozenset[str]
    keys: Mapping[str, Key]


def section_of(title: str, tags: tuple[str, ...], *keys: Key) -> Section:
    """A section of these keys."""
    return Section(title=title, tags=frozenset(tags), keys={key.name: key for key in keys})


def section_below(title: str, *keys: Key) -> Section:
    """A section below `cqrepl`; the variables of its keys begin with its title."""
    prefix = f"{title.upper()}_"
    return section_of(title, (), *(replace(key, prefix=prefix) for key in keys))


def unused_key(name: str) -> Key:
    """A key that only a JVM has a use for."""
    says = "of a JVM: accepted, and without effect here"
    return Key(name=name, kind=ANYTHING, says=says, is_used=False)
