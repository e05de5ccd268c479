"""Looks whether this machine suits a host, and what to do where it does not."""

import ctypes
import io
import json
import os
import platform
import resource
import shutil
import socket
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from cqrepl._version import VERSION
from cqrepl.commands.config import Options, plan
from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import HostPlan
from cqrepl.console import exitcodes, output
from cqrepl.console.units import format_bytes
from cqrepl.kernel import choose
from cqrepl.net.address import Address
from cqrepl.net.controlsocket import NotThere, ask_status
from cqrepl.net.errors import Refused
from cqrepl.net.rundirectory import known_hosts, usual_run_dir
from cqrepl.net.tlscredentials import load_credentials

FILES_MIN: Final = 4096
PART_FREE_MIN: Final = 0.1
FREE_MIN: Final = 1 << 30
REACH_SECONDS: Final = 2.0
_REMOTE: Final = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "glusterfs", "lustre", "afs")
_TIMEX_BYTES: Final = 512
_UNSYNCHRONISED: Final = 5


@dataclass(frozen=True, slots=True)
class Checkup:
    """One line.

    Args:
        state: `ok`, `warn` or `fail`.
        fix: what to do; empty where nothing is.
    """

    state: str
    of: str
    says: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"  fix: {self.fix}" if self.fix else ""
        return f"{self.state:<5} {self.of:<14} {self.says}{fix}"


def examine(
    file: Path | None,
    options: Options,
    queues: Iterable[Path],
    bundle: Path | None,
    *,
    as_json: bool,
) -> int:
    """Prints a line for each thing that is looked at; 1 where one fails.

    Args:
        file: of a cluster, one host of which is to run here; None: there is none.
        bundle: where all of it is stored besides.
    """
    found = [*_of_machine(), *_of_cluster(file, options), *_of_queues(queues)]
    for each in found:
        line = output.json_line({"v": 1, **asdict(each)}) if as_json else f"{each}\n"
        output.write_text(line)
    if bundle is not None:
        _store(bundle, file, found)
        output.write_text("" if as_json else f"stored in {bundle}\n")
    output.flush()
    return exitcodes.STOPPED if any(each.state == "fail" for each in found) else exitcodes.OK


def _of_machine() -> Iterator[Checkup]:
    yield _kernel()
    yield _open_files()
    yield _clock()
    yield _processes()


def _kernel() -> Checkup:
    if choose.NAME == "native":
        return Checkup("ok", "kernel", "native")
    fix = "install a wheel of this platform, or cargo, and look at CQREPL_KERNEL"
    return Checkup("warn", "kernel", f"{choose.NAME}: ten times slower than the native one", fix)


def _open_files() -> Checkup:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES_MIN:
        return Checkup("ok", "open files", f"limit {soft:,}")
    fix = "LimitNOFILE=65536 in the unit, or `ulimit -n 65536`"
    return Checkup("warn", "open files", f"limit {soft:,}, expected {FILES_MIN:,}", fix)


def _clock() -> Checkup:
    call = getattr(ctypes.CDLL(None), "adjtimex", None)
    state = -1 if call is None else call(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state == _UNSYNCHRONISED:
        fix = "run chrony or systemd-timesyncd: cycles are named by the clock"
        return Checkup("warn", "clock", "not synchronised, as the system says", fix)
    if state < 0:
        return Checkup("warn", "clock", "the system does not tell whether it is synchronised")
    return Checkup("ok", "clock", "synchronised")


def _processes() -> Checkup:
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            fields = line.split()
            if fields[1:2] == ["/proc"] and "hidepid=" in line and os.geteuid() != 0:
                fix = "mount /proc without hidepid, and leave ProtectProc out of the unit"
                return Checkup("fail", "processes", "/proc hides those of other users", fix)
    try:
        os.stat("/proc/1/stat")
    except OSError:
        fix = "share the name space of processes with all that write the queues"
        return Checkup("warn", "processes", "process 1 is not seen", fix)
    return Checkup("ok", "processes", f"name space {os.readlink('/proc/self/ns/pid')}")


def _of_cluster(file: Path | None, options: Options) -> Iterator[Checkup]:
    if file is None:
        return
    try:
        made = plan(file, options)
    except ConfigError as error:
        yield Checkup("fail", "config", str(error), "`cqrepl config schema` has all keys")
        return
    count = len({**made.sources, **made.sinks})
    yield Checkup("ok", "config", f"{file}: {count} queues of this host")
    yield from _certificates(made)
    yield from _ports(made)
    yield from _of_queues({**made.sources, **made.sinks}.values())


def _certificates(made: HostPlan) -> Iterator[Checkup]:
    tls = made.settings.net.tls
    if not tls.is_on:
        fix = "`cqrepl certs`, then `tls: {mode: required}`"
        yield Checkup("warn", "certificates", "without TLS, host ids are claims", fix)
        return
    try:
        found = load_credentials(tls, made.settings.protocol.host_id)
    except Refused as error:
        yield Checkup("fail", "certificates", str(error), "`cqrepl certs show` says what it is")
        return
    warning = found.warning(time.time())
    if warning:
        yield Checkup("fail" if found.stale else "warn", "certificates", warning, "replace it")
    else:
        yield Checkup("ok", "certificates", str(found.own))


def _ports(made: HostPlan) -> Iterator[Checkup]:
    for address in made.settings.net.listens:
        yield _port(address, made)
    for host_id, text in sorted(made.addresses.items()):
        if host_id != made.settings.protocol.host_id:
            yield _reach(host_id, Address.parse(text))


def _port(address: Address, made: HostPlan) -> Checkup:
    own, directory = made.settings.protocol.host_id, made.settings.run_dir or usual_run_dir()
    with suppress(OSError, ValueError):
        if own in known_hosts(Path(directory)):
            return Checkup("ok", "port", f"{address}: host {own} runs here")
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((address.host, address.port))
        except OSError as error:
            fix = f"`ss -ltnp sport = :{address.port}` says which process has it"
            return Checkup("fail", "port", f"{address}: {error.strerror or error}", fix)
    return Checkup("ok", "port", f"{address} is free")


def _reach(host_id: int, address: Address) -> Checkup:
    try:
        with socket.create_connection((address.host, address.port), REACH_SECONDS):
            return Checkup("ok", "peer", f"host {host_id} answers at {address}")
    except OSError as error:
        why = error.strerror or str(error)
        fix = "is it up, and is the port open in all firewalls between?"
        return Checkup("warn", "peer", f"host {host_id} at {address}: {why}", fix)


def _of_queues(paths: Iterable[Path]) -> Iterator[Checkup]:
    for path in paths:
        there = next(
            (each for each in (path, *path.absolute().parents) if each.exists()), Path("/")
        )
        yield _disk(path, there)
        yield _file_system(path, there)
        if path.exists() and path.stat().st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            fix = "run the host as the owner of its queues"
            yield Checkup("warn", "owner", f"{path}: of user {path.stat().st_uid}", fix)


def _disk(path: Path, there: Path) -> Checkup:
    size, _, free = shutil.disk_usage(there)
    says = f"{path}: {format_bytes(free)} of {format_bytes(size)} are free"
    if free >= min(FREE_MIN, size * PART_FREE_MIN):
        return Checkup("ok", "disk", says)
    return Checkup("fail", "disk", says, "`cqrepl gc`, or `retention:` in the file")


def _file_system(path: Path, there: Path) -> Checkup:
    kind = file_system_of(there.resolve())
    if kind.startswith(_REMOTE):
        fix = "use a disk of this machine: ext4, xfs"
        return Checkup("fail", "file system", f"{path}: {kind} keeps no shared mapping", fix)
    return Checkup("ok", "file system", f"{path}: {kind or 'not known'}")


def file_system_of(path: Path) -> str:
    """The kind of file system that a path is on; empty where it is not known."""
    found = ("", "")
    with suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, place, kind, *_ = line.split()
            place = place.replace("\\040", " ")
            if path.is_relative_to(place) and len(place) >= len(found[0]):
                found = (place, kind)
    return found[1]


def _store(bundle: Path, file: Path | None, found: Iterable[Checkup]) -> None:
    """Stores what support asks for: no payloads, and of keys and tokens only the paths."""
    parts = {"doctor.txt": "".join(f"{each}\n" for each in found)}
    versions = {"cqrepl": VERSION, "python": platform.python_version(), "kernel": choose.NAME}
    parts["versions.json"] = json.dumps(versions | {"system": platform.platform()}, indent=1)
    if file is not None:
        with suppress(OSError):
            parts["cluster.yaml"] = file.read_text(errors="replace")
    directory = usual_run_dir()
    for host_id in known_hosts(directory):
        try:
            parts[f"status-{host_id}.json"] = json.dumps(ask_status(directory, host_id), indent=1)
        except NotThere as error:
            parts[f"status-{host_id}.txt"] = f"{error}\n"
    with bundle.open("xb") as place, tarfile.open(fileobj=place, mode="w:gz") as packed:
        for name, text in parts.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"cqrepl/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            packed.addfile(entry, io.BytesIO(data))
