"""The messages between hosts about which host is to lead a queue, under the csp `/cluster/NAME`.

A registration asks for one thing, and is answered by one document, or by excerpts:

    where    how far the copy is, and what it has promised; and the chain before an index, if asked
    fence    the same, once it has promised an epoch to the host that asks
    send     its excerpts from an index up to another one
    lead     to be promoted in place of the host that asks; answered as `where` once it leads

The host that asks is the one that is to lead, but for `lead`, which goes only to a peer that has
announced the capability of that name: an older one would close the connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cqrepl.protocol.messages.offer import read_epochs, write_epochs
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.index import Index
from wire import Reader, WireError, Writer

POSITION: Final = "position"
_FIELDS: Final = ("epoch", "first", "end")
_CHAIN: Final = "chain"
_BY: Final = "by"
_MEMBERS: Final = "members"
_LISTED: Final = "membersOf"
_HEARS: Final = "hears"
_UNPROVED: Final = "unproved"
_TEXTS: Final = ("held", "trouble", "unwritable")


class FenceVerb(StrEnum):
    """The thing that a request asks for."""

    WHERE = "where"
    FENCE = "fence"
    SEND = "send"
    LEAD = "lead"


class FenceBy(StrEnum):
    """The word by which a host is to lead."""

    OPERATOR = "operator"  # or a reloaded file's, or that of the host which leads
    ELECTION = "election"  # a member that hears a leader refuses that


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRequest:
    """One request.

    Args:
        epoch: that is to be promised.
        first, end: the first index that is to be sent, and the one behind the last; `where`: the
            index before which the chain is asked for.
        chain: over what the host that asks has of the cycle before `first`; none for nothing.
        by: of `fence`.
        members: of `fence`: the hosts that have copies in that epoch; only to peers that know them.
            Empty: as in the epoch before.
    """

    verb: FenceVerb
    epoch: int = 0
    first: int = 0
    end: int = 0
    chain: bytes = b""
    by: FenceBy = FenceBy.OPERATOR
    members: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPosition:
    """The position of a copy: its next index, its epochs, and what keeps it from leading.

    Args:
        next_index: the first one that it does not have; 0 for an empty one.
        epochs: what it has promised, and the history of what it holds.
        is_source: it is streamed from there.
        is_there: there is a queue; else none was taken in yet.
        held: why an operator's word keeps it from leading; empty where none does.
        trouble: what keeps it from being written there, when that was tried last; empty for none.
        unwritable: why no promise can be noted beside it, as was tried; empty where one can.
        unproved: from where on a power cut may have torn what it holds; or its end, where one may
            have taken what came behind. None: all is whole, and there.
        chain: over what it has of the cycle before the index that was asked for; none where no
            index was asked for, or the host cannot tell the chain.
        hears: its host hears a leader, so it promises nothing by election.
    """

    next_index: Index
    epochs: Epochs
    is_source: bool
    is_there: bool = True
    held: str = ""
    trouble: str = ""
    unwritable: str = ""
    unproved: Index | None = None
    chain: bytes = b""
    hears: bool = False


def write_request(writer: Writer, request: FenceRequest) -> None:
    """The fields of a registration, into an open block."""
    writer.name("do")
    writer.text(request.verb)
    for name in _FIELDS:
        writer.name(name)
        writer.integer(getattr(request, name))
    writer.name(_CHAIN)
    writer.text(request.chain.hex())
    if request.by is not FenceBy.OPERATOR:
        writer.name(_BY)
        writer.text(request.by)
    _write_members(writer, request.members)


def read_request(fields: Mapping[str, Reader]) -> FenceRequest:
    """The same, as they came.

    Raises:
        WireError: they are none.
    """
    try:
        numbers = {name: fields[name].read_int() for name in _FIELDS}
        verb = FenceVerb(fields["do"].read_text() or "")
        chain = bytes.fromhex(fields[_CHAIN].read_text() or "")
        by = FenceBy(_text(fields, _BY) or FenceBy.OPERATOR)
        members = _read_members(fields)
    except (KeyError, ValueError) as error:
        raise WireError(f"a request about who is to lead expected: {error!r}") from error
    return FenceRequest(verb=verb, chain=chain, by=by, members=members, **numbers)


def write_position(position: CopyPosition) -> bytes:
    """The position of a copy; without a cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(POSITION)
        with writer.block():
            writer.name("nextIndex")
            writer.hex_int(position.next_index)
            writer.name("promised")
            writer.integer(position.epochs.promised)
            writer.name("leader")
            writer.integer(position.epochs.promised_to)
            writer.name("source")
            writer.boolean(position.is_source)
            if not position.is_there:
                writer.name("there")
                writer.boolean(False)
            if position.hears:
                writer.name(_HEARS)
                writer.boolean(True)
            if position.epochs.members:
                _write_members(writer, position.epochs.members)
                writer.name(_LISTED)
                writer.integer(position.epochs.listed)
            for name in _TEXTS:
                if text := getattr(position, name):
                    writer.name(name)
                    writer.text(text)
            if position.unproved is not None:
                writer.name(_UNPROVED)
                writer.hex_int(position.unproved)
            if position.chain:
                writer.name(_CHAIN)
                writer.text(position.chain.hex())
            write_epochs(writer, position.epochs.history)
    return bytes(writer.data)


def read_position(reader: Reader) -> CopyPosition:
    """The same, once its name was read.

    Raises:
        WireError: it is none.
    """
    fields = reader.read_block().read_fields()
    try:
        history = read_epochs(fields)
        if history is None:
            raise ValueError("no epochs")
        epochs = Epochs(
            promised=fields["promised"].read_int(),
            promised_to=fields["leader"].read_int(),
            history=history,
            members=_read_members(fields),
            listed=fields[_LISTED].read_int() if _LISTED in fields else 0,
        )
        end = Index(fields["nextIndex"].read_int())
        return CopyPosition(
            next_index=end,
            epochs=epochs,
            is_source=fields["source"].read_bool(),
            hears=_HEARS in fields and fields[_HEARS].read_bool(),
            is_there="there" not in fields or fields["there"].read_bool(),
            **{name: _text(fields, name) for name in _TEXTS},
            unproved=Index(fields[_UNPROVED].read_int()) if _UNPROVED in fields else None,
            chain=bytes.fromhex(_text(fields, _CHAIN)),
        )
    except (KeyError, ValueError) as error:
        raise WireError(f"the position of a copy expected: {error!r}") from error


def _write_members(writer: Writer, members: frozenset[int]) -> None:
    """The ids, as `1+2+3`; nothing for none."""
    if members:
        writer.name(_MEMBERS)
        writer.text("+".join(map(str, sorted(members))))


def _read_members(fields: Mapping[str, Reader]) -> frozenset[int]:
    text = _text(fields, _MEMBERS)
    return frozenset(int(each) for each in text.split("+")) if text else frozenset()


def _text(fields: Mapping[str, Reader], name: str) -> str:
    return (fields[name].read_text() or "") if name in fields else ""
