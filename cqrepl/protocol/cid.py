"""The number that stands for a sub-handler on one connection, as a type of its own."""

from typing import NewType

Cid = NewType("Cid", int)
