"""The recording of a proxy: a capture of what it passed on, as if it had been seen on the network.

Theory of operation. Each piece of bytes that a proxy reads becomes one packet: IP and TCP headers
are made up, with the real addresses, ports and sequence numbers, and no checksums. So a recording
is read like any other capture, by `wire-dump` and by Wireshark. Times have nanoseconds.

    pcap, nanoseconds, raw IP;  for each connection SYN, SYN, then data, then FIN of either side

Every packet goes to the file at once, so a recording is whole even if the process is killed.
"""

import ipaddress
import struct
from typing import BinaryIO, Final

from cqrepl.dump.segments import FIN, LINK_RAW, SYN

PIECE_MAX: Final = 32 << 10  # so that a packet fits the 16 bits of its length
_ACK: Final = 0x10
_NANOS_MAGIC: Final = 0xA1B23C4D
_SNAP_BYTES: Final = 1 << 18
_End = tuple[str, int]


class Recording:
    """Counts the packets, and writes them where there is a file."""

    def __init__(self, file: BinaryIO | None) -> None:
        self.packets = 0
        self._file = file
        if file is not None:
            file.write(struct.pack("<IHHiIII", _NANOS_MAGIC, 2, 4, 0, 0, _SNAP_BYTES, LINK_RAW))

    def add(self, packet: bytes, time_ns: int) -> int:
        """Adds a packet; gives its number."""
        self.packets += 1
        if self._file is not None:
            seconds, nanos = divmod(time_ns, 1_000_000_000)
            self._file.write(
                struct.pack("<IIII", seconds, nanos, len(packet), len(packet)) + packet
            )
        return self.packets


class RecordedConnection:
    """Makes the packets of one connection; direction 0 is that of the dialler."""

    def __init__(self, recording: Recording, dialler: _End, target: _End, time_ns: int) -> None:
        self._recording = recording
        hosts = [ipaddress.ip_address(host) for host, _ in (dialler, target)]
        if hosts[0].version != hosts[1].version:
            hosts = [
                ipaddress.ip_address(f"::ffff:{host}") if host.version == 4 else host
                for host in hosts
            ]
        self.ends = (str(hosts[0]), dialler[1]), (str(hosts[1]), target[1])
        self._hosts = hosts
        self._sent = [0, 0]  # the next sequence numbers
        self._has_ended = [False, False]
        for direction in (0, 1):
            self._add(direction, SYN if direction == 0 else SYN | _ACK, b"", time_ns)
            self._sent[direction] = 1

    def data(self, direction: int, data: bytes, time_ns: int) -> int:
        """The number of the packet that these bytes became."""
        assert len(data) <= PIECE_MAX
        number = self._add(direction, _ACK, data, time_ns)
        self._sent[direction] = (self._sent[direction] + len(data)) % (1 << 32)
        return number

    def end(self, direction: int, time_ns: int) -> None:
        """A direction has ended; again, nothing."""
        if not self._has_ended[direction]:
            self._has_ended[direction] = True
            self._add(direction, FIN | _ACK, b"", time_ns)

    def _add(self, direction: int, flags: int, data: bytes, time_ns: int) -> int:
        sender, receiver = self.ends[direction], self.ends[1 - direction]
        tcp = struct.pack(
            ">HHIIBBHHH",
            *(sender[1], receiver[1], self._sent[direction], self._sent[1 - direction]),
            *(5 << 4, flags, 0xFFFF, 0, 0),
        )
        source, target = self._hosts[direction].packed, self._hosts[1 - direction].packed
        length = len(tcp) + len(data)
        if len(source) == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, 6, 0)
        else:
            ip = struct.pack(">IHBB", 6 << 28, length, 6, 64)
        return self._recording.add(ip + source + target + tcp + data, time_ns)
