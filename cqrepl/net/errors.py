"""Errors that keep two hosts from replicating, apart from the errors of a queue."""


class NetError(Exception):
    """The network cannot be used as asked; the message is one line for people."""


class Unreachable(NetError):
    """The peer could not be reached in time, or the address cannot be listened on."""


class Refused(NetError):
    """The peer was reached, and one of the two sides refuses: ids, roll cycle, locks."""
