"""TLS 1.3 on one connection, between its TCP socket and a pair of sockets with plain bytes.

Theory of operation. A connection's pump, and the native pump that it lends its socket to, own one
end of a pair of Unix sockets. Two tasks carry between the other end and the TCP socket: one
encrypts what the pump sends, one decrypts what the peer sends. Neither kernel knows of it, and both
do the same work on the same bytes as without TLS.

What is under way is bounded: each task holds at most `CARRIED_BYTES` and what TLS makes of them,
and the pair holds what the system lets a Unix socket hold. A full TCP socket stops the task that
sends, that fills the pair, and the pump finds its socket full: push-back is as ever.

    pump | <- pair of sockets -> | carrier: ssl.SSLObject, two ssl.MemoryBIO | <- TCP -> | peer

Each end of stream is passed on: that of the pump as `close_notify`, behind which the peer may go on
sending; that of the peer as the end of the pair. A peer that goes without `close_notify` ends the
same way: the protocol above tells an orderly end by its own words, and believes no end of stream.
"""

import contextlib
import socket
import ssl
from typing import Final, cast

import trio

from cqrepl.net.certificates import Certificate
from cqrepl.net.tlscredentials import Credentials, certificate_of, reason_of

CARRIED_BYTES: Final = 256 * 1024
RECORD_BYTES: Final = 16 * 1024  # most plain bytes of one record
GREETED_BYTES_MAX: Final = 128 * 1024  # received before a handshake is over
LINGER_SECONDS: Final = 1.0  # for what a pump has sent before it ended
_HANDSHAKE: Final = 22  # first byte of what a client of TLS sends


class NoTlsPeer(Exception):
    """A handshake has failed; the message says why, in one line.

    Args:
        is_final: the next one would fail in the same way.
    """

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class TlsLine:
    """The TLS of one connection.

    Args:
        wire: the TCP stream.
        is_dialler: this side has dialled.
    """

    def __init__(
        self, wire: trio.SocketStream, credentials: Credentials, *, is_dialler: bool
    ) -> None:
        self.credentials = credentials
        self.peer: Certificate | None = None  # once it is known
        self.problem = ""  # why it has ended, where that is TLS
        self.flushed = trio.Event()  # what the pump has sent has gone out, or never will
        self._wire = wire
        self._received, self._sealed = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = credentials.client if is_dialler else credentials.server
        self._object = context.wrap_bio(self._received, self._sealed, server_side=not is_dialler)
        self._sending = trio.Lock()
        self._scope = trio.CancelScope()
        ours, pumps = socket.socketpair()
        try:
            self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(pumps))
            self._plain = trio.socket.from_stdlib_socket(ours)
        except BaseException:
            ours.close()
            pumps.close()
            raise

    async def shake_hands(self) -> None:
        """Returns once the peer is known. Bounded by the caller.

        Raises:
            NoTlsPeer: it is none that is taken, or does not take this side.
        """
        count = 0
        while True:
            try:
                self._object.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                await self._tell_alert()
                raise NoTlsPeer(self._reason(error), is_final=True) from None
            try:
                await self._send_sealed()
                data = await self._wire.receive_some(RECORD_BYTES)
            except trio.BrokenResourceError:
                data = b""
            count += len(data)
            if not data:
                raise NoTlsPeer("expected a TLS handshake, the peer closed the connection in it")
            if count > GREETED_BYTES_MAX:
                raise NoTlsPeer(
                    f"expected a TLS handshake of at most {GREETED_BYTES_MAX} bytes, got more"
                )
            self._received.write(data)
        try:
            await self._send_sealed()
        except trio.BrokenResourceError:
            raise NoTlsPeer("the peer closed the connection in the TLS handshake") from None
        self.peer = certificate_of(self._object)

    async def carry(self) -> None:
        """Carries until both directions have ended, or `close` is called."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._seal)
                    nursery.start_soon(self._open)
        finally:
            self.flushed.set()
            self._plain.close()
            await trio.aclose_forcefully(self._wire)

    async def close(self) -> None:
        """The pump has ended: what it has sent may still go out, for a moment."""
        with trio.move_on_after(LINGER_SECONDS):
            await self.flushed.wait()
        self._scope.cancel()

    async def discard(self) -> None:
        """Ends it where `carry` never runs."""
        self._plain.close()
        await trio.aclose_forcefully(self.stream)
        await trio.aclose_forcefully(self._wire)

    async def _seal(self) -> None:
        """Sends the peer what the pump sends."""
        room = bytearray(CARRIED_BYTES)
        try:
            with memoryview(room) as view:
                while count := await self._plain.recv_into(view):
                    done = 0
                    while done < count:
                        done += self._object.write(view[done:count])
                    await self._send_sealed()
            with contextlib.suppress(ssl.SSLError):  # `close_notify` is made in any case
                self._object.unwrap()
            await self._send_sealed()
            self._wire.socket.shutdown(socket.SHUT_WR)
        except ssl.SSLError as error:
            self._fail(error)
            self._scope.cancel()
        except (trio.BrokenResourceError, OSError):
            pass  # the task that opens meets the same end, and passes it on
        self.flushed.set()

    async def _open(self) -> None:
        """Gives the pump what the peer sends."""
        room = bytearray(CARRIED_BYTES)
        try:
            with memoryview(room) as view:
                while await self._opened_all(view):
                    data = await self._wire.receive_some(CARRIED_BYTES)
                    if not data:
                        break
                    self._received.write(data)
        except (trio.BrokenResourceError, OSError) as error:
            if isinstance(error, ssl.SSLError):
                self._fail(error)
        # an end of the pair, behind all that came; the pump may have closed its own
        with contextlib.suppress(OSError):
            self._plain.shutdown(socket.SHUT_WR)

    async def _opened_all(self, room: memoryview) -> bool:
        """Gives the pump all that can be decrypted; false at the end of what the peer sends."""
        is_open = True
        while is_open:
            filled = 0
            try:
                while filled <= len(room) - RECORD_BYTES:
                    count = self._read_into(room[filled:])
                    if not count:
                        is_open = False
                        break
                    filled += count
            except ssl.SSLWantReadError:
                await self._send_all(room[:filled])
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                is_open = False
            await self._send_all(room[:filled])
        if self._sealed.pending and not self._sending.locked():  # an answer to a change of keys
            await self._send_sealed()
        return is_open

    def _read_into(self, room: memoryview) -> int:
        """Decrypts at most one record; how many bytes."""
        # typed for a bytearray, it takes any memory that can be written, and gives a number then
        return cast("int", self._object.read(RECORD_BYTES, cast("bytearray", room)))

    async def _send_all(self, data: memoryview) -> None:
        while data:
            sent = await self._plain.send(data)
            data = data[sent:]

    async def _send_sealed(self) -> None:
        async with self._sending:
            data = self._sealed.read()
            if data:
                await self._wire.send_all(data)

    async def _tell_alert(self) -> None:
        """Sends the alert that a failed handshake has left, and lets the peer read it."""
        try:
            await self._send_sealed()
            await self._wire.send_eof()
            for _ in range(GREETED_BYTES_MAX // RECORD_BYTES):
                # what is closed with bytes unread is reset, and the peer may lose the alert
                if not await self._wire.receive_some(RECORD_BYTES):
                    break
        except (trio.BrokenResourceError, OSError):
            pass

    def _fail(self, error: ssl.SSLError) -> None:
        if not self.problem:
            self.problem = self._reason(error)

    def _reason(self, error: ssl.SSLError) -> str:
        return reason_of(error, self.credentials.settings)


async def begins_with_tls(stream: trio.SocketStream) -> bool | None:
    """True when the first byte from a client is one of TLS; None where it closes before one. It
    stays to be read. Bounded by the caller."""
    try:
        first = await stream.socket.recv(1, socket.MSG_PEEK)
    except OSError:
        return None
    return first[0] == _HANDSHAKE if first else None
