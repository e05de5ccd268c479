"""The way in to a host that takes TLS: peers come by it before they are connections.

Theory of operation. A connection that is accepted stands at the doorstep while it shakes hands, and
one of a few there (`doorstep`). Where it is encrypted, its pump is made once the peer's certificate
was verified. Bytes without TLS are read all the same, as far as the peer's UberHandler, so that it
can be told why it is not let in, in the words of the protocol.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from cqrepl.net.address import Address
from cqrepl.net.doorstep import Doorstep
from cqrepl.net.peerlog import PeerLog
from cqrepl.net.pump import Pump
from cqrepl.net.revocation import Reviewer
from cqrepl.net.settings import NetSettings
from cqrepl.net.threads import in_thread
from cqrepl.net.tlscredentials import BadCredentials, Credentials, load_credentials
from cqrepl.net.tlsline import NoTlsPeer, TlsLine, begins_with_tls
from cqrepl.net.tlssettings import TlsSettings, is_local
from cqrepl.surroundings import surroundings

EXPECTED: Final = "expected TLS, got plain bytes: `tls: {plain: ...}` names hosts without TLS"
LOOK_SECONDS: Final = 3600.0  # between two looks whether a certificate is about to end
_SAY_SECONDS: Final = 86_400.0
_NS: Final = 1_000_000_000
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way that a connection has come in, or why it has not.

    Args:
        line: its TLS; None where it has none.
        problem: why it is not let in; or empty.
        is_final: another attempt would end in the same way.
    """

    line: TlsLine | None = None
    problem: str = ""
    is_final: bool = False


class _Shaking:
    """A connection that shakes hands, at the doorstep."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.why = ""

    def dismiss(self, why: str) -> None:
        self.why = why
        self.scope.cancel()


class TlsGate:
    """The TLS of one host.

    Args:
        host_id: its own; None for a guest.

    Raises:
        BadCredentials: a file cannot be used, and which.
    """

    def __init__(
        self, settings: NetSettings, host_id: int | None, doorstep: Doorstep, log: PeerLog
    ) -> None:
        self._host_id = host_id
        self._doorstep = doorstep
        self._log = log
        self.credentials: Credentials | None = None
        if settings.tls.is_on:
            self.credentials = load_credentials(settings.tls, host_id)
        self._lines: dict[Pump, TlsLine] = {}

    async def read_again(self, settings: TlsSettings) -> Credentials | None:
        """The credentials in the files that settings name.

        Raises:
            BadCredentials: a file cannot be used, and which.
        """
        if (self.credentials is not None) != settings.is_on:
            raise BadCredentials("tls: whether there is TLS is settled when a host starts")
        if not settings.is_on:
            return None
        return await in_thread(partial(load_credentials, settings, self._host_id))

    def take(self, credentials: Credentials | None) -> None:
        """Others count from now on; connections end whose peers they do not take."""
        if credentials is None:
            return
        old, self.credentials = self.credentials, credentials
        assert old is not None
        review = Reviewer(old, credentials)
        for pump, line in list(self._lines.items()):
            problem = "" if line.peer is None else review.problem(line.peer)
            if problem:
                self._log.tell(logging.WARNING, pump.label, f"closed: {problem}")
                pump.renew(problem)
        if old.own.der != credentials.own.der or old.trusted != credentials.trusted:
            _logger.info("certificates were read again: this host is %s", credentials.own)
        self._warn()

    async def accept(
        self, stream: trio.SocketStream, label: str, machine: str, seconds: float
    ) -> Entrance:
        """Shakes hands with a peer that has dialled.

        Args:
            seconds: so long at most.
        """
        assert self.credentials is not None
        shaking = _Shaking()
        self._doorstep.enter(machine, shaking)
        try:
            with shaking.scope:
                entry = await self._shake(stream, seconds, is_dialler=False)
        finally:
            self._doorstep.leave(shaking)
        if shaking.why:  # it was dismissed, or was over in the same moment
            if not shaking.scope.cancelled_caught and entry.line is not None:
                await entry.line.discard()
            entry = Entrance(problem=shaking.why)
            self._log.tell(logging.INFO, label, f"closed: {shaking.why}")
        elif entry.problem and entry.problem != EXPECTED:
            self._log.tell(logging.WARNING, label, f"refused: {entry.problem}")
        return entry

    async def dial(self, stream: trio.SocketStream, host_id: int, seconds: float) -> Entrance:
        """Shakes hands with a host that was dialled.

        Args:
            host_id: that it has to have; 0 for any.
            seconds: so long at most.
        """
        entry = await self._shake(stream, seconds, is_dialler=True)
        if entry.line is None or not host_id:
            return entry
        assert entry.line.peer is not None
        problem = entry.line.peer.problem_as_host(host_id)
        if problem is None:
            return entry
        await entry.line.discard()
        return Entrance(problem=problem, is_final=True)

    async def _shake(
        self, stream: trio.SocketStream, seconds: float, *, is_dialler: bool
    ) -> Entrance:
        assert self.credentials is not None
        line: TlsLine | None = None
        entry: Entrance | None = None
        try:
            with trio.move_on_after(seconds):
                begins = True if is_dialler else await begins_with_tls(stream)
                if begins is None:
                    entry = Entrance(problem="the peer closed the connection before a byte")
                elif not begins:
                    entry = Entrance(problem=EXPECTED, is_final=True)
                else:
                    line = TlsLine(stream, self.credentials, is_dialler=is_dialler)
                    await line.shake_hands()
                    entry = Entrance(line=line)
        except NoTlsPeer as error:
            entry = Entrance(problem=str(error), is_final=error.is_final)
        except OSError as error:  # too few descriptors; later there may be some
            entry = Entrance(problem=error.strerror or str(error))
        finally:
            if line is not None and (entry is None or entry.line is None):
                with trio.CancelScope(shield=True):
                    await line.discard()
        return entry or Entrance(problem=f"no TLS handshake within {seconds:g} s")

    # connections that there are

    def entered(self, pump: Pump, line: TlsLine) -> None:
        """A pump runs behind a handshake."""
        self._lines[pump] = line

    def left(self, pump: Pump) -> None:
        """It has ended."""
        self._lines.pop(pump, None)

    def line_of(self, pump: Pump) -> TlsLine | None:
        """The TLS of a connection; None where it is plain."""
        return self._lines.get(pump)

    def problem(self, pump: Pump, host_id: int) -> str | None:
        """The reason that the certificate of a peer is not the one of who it says it is; None where
        it is, or the connection is plain."""
        line = self._lines.get(pump)
        if line is None or line.peer is None:
            return None
        if pump.connection.is_guest:
            return line.peer.problem_as_guest()
        return line.peer.problem_as_host(host_id)

    # what is said of itself

    async def run(self) -> None:
        """Warns of a certificate that is about to end, once a day."""
        while self.credentials is not None:
            self._warn()
            await trio.sleep(_SAY_SECONDS)

    def _warn(self) -> None:
        assert self.credentials is not None
        warning = self.credentials.warning(surroundings().wall_ns() / _NS)
        if warning:
            _logger.warning("%s", warning)

    @property
    def lines(self) -> Mapping[Pump, TlsLine]:
        """The TLS of each connection that has it."""
        return self._lines


def warn_of_plain(
    settings: NetSettings, dialled: Mapping[int, Address], say: Callable[[str], None]
) -> None:
    """Says, once, which addresses beyond this machine are reached without TLS."""
    tls = settings.tls
    listens = settings.listens
    if tls.is_on:
        listens = () if tls.plain is None or tls.plain.listen is None else (tls.plain.listen,)
    beyond = [f"listens at {each}" for each in listens if not is_local(each)]
    beyond += [
        f"dials host {host_id} at {each}" if host_id else f"dials {each}"
        for host_id, each in dialled.items()
        if tls.meets_plain(host_id) and not is_local(each)
    ]
    if beyond:
        say(
            f"traffic is not encrypted, and the id of a host is only a claim: this host"
            f" {', '.join(beyond)} without TLS"
        )
