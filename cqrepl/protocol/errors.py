"""Two errors: the caller asked for something illegal, or the peer did."""


class ProtocolError(Exception):
    """Something that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """Our caller asked for a move that the state table does not have. Nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what it may not. The connection is to be closed; nothing more is read from
    it."""
