"""TLS between hosts: what they say is encrypted, and each knows whom it talks to."""

import logging
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from cqrepl.commands.authority import Authority
from cqrepl.net import tlsgate
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.net.tlscredentials import BadCredentials, Credentials, load_credentials
from cqrepl.net.tlsgate import EXPECTED
from cqrepl.net.tlssettings import PlainSettings, TlsMode, TlsSettings
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.authorities import host_tls, tls_of
from tests.support.replicas import (
    BEATS,
    LOOPBACK,
    SECONDS,
    TAKEN,
    acked,
    at,
    copied,
    eventually,
    more_excerpts,
)
from tests.support.requirements import require
from tests.support.samples import fill, noon_index

pytest.importorskip("cryptography", reason="certificates are made with it")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path / "ca")


@asynccontextmanager
async def listening(path: Path, tls: TlsSettings, **more: Any) -> AsyncIterator[Source]:
    options: dict[str, Any] = {"listen": LOOPBACK, "host_id": 1} | BEATS | TAKEN | more
    async with serve_source({"q": path}, tls=tls, **options) as source:
        yield source


@asynccontextmanager
async def dialling(path: Path, source: Source, **more: Any) -> AsyncIterator[Sink]:
    async with serve_sink({"q": path}, **({"connect": at(source.port)} | BEATS | more)) as sink:
        yield sink


async def test_excerpts_go_over_tls(tmp_path: Path, authority: Authority, has_pump: bool) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 500})
    async with listening(original, host_tls(authority, 1)) as source:
        async with dialling(copy, source, tls=host_tls(authority, 2)):
            await copied(original, copy)
            await acked(source, more_excerpts(original, 500, 300)[-1][0])
        assert await _ended(source)
    await copied(original, copy)


async def _ended(source: Source) -> bool:
    with trio.fail_after(SECONDS):
        await source.endpoint.ended_orderly.wait()
    return True


async def test_no_payload_is_seen_on_the_wire(tmp_path: Path, authority: Authority) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    held = fill(original, "FAST_DAILY", {0: 50})
    seen = bytearray()
    async with (
        listening(original, host_tls(authority, 1)) as source,
        trio.open_nursery() as nursery,
    ):
        serve = partial(_relay, at(source.port), seen)
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        async with dialling(copy, source, connect=at(port), tls=host_tls(authority, 2)):
            await copied(original, copy)
        nursery.cancel_scope.cancel()
    assert len(seen) > sum(len(payload) for _, payload in held)
    assert not any(payload in seen for _, payload in held if len(payload) > 8)
    assert b"UberHandler" not in seen


async def _relay(target: str, seen: bytearray, stream: trio.SocketStream) -> None:
    address = Address.parse(target)
    async with stream, await trio.open_tcp_stream(address.host, address.port) as other:
        async with trio.open_nursery() as nursery:
            for one, two in ((stream, other), (other, stream)):
                nursery.start_soon(_pass_on, one, two, seen)


async def _pass_on(one: trio.SocketStream, two: trio.SocketStream, seen: bytearray) -> None:
    try:
        async for data in one:
            seen += data
            await two.send_all(data)
        await two.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def test_a_peer_that_takes_nothing_stops_the_queue(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes on their way through TLS are bounded: a peer that reads nothing has few of 64 MiB."""
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 1})
    with Queue.open_for_append(original) as queue:
        for each in range(64):
            batch = ExcerptBatch.of(noon_index(sequence=1 + each * 16), [bytes(65536)] * 16)
            queue.appender().append_at(batch)
    gate = trio.Event()

    async def shut(stream: trio.SocketStream, target: str) -> None:
        address = Address.parse(target)
        async with stream, await trio.open_tcp_stream(address.host, address.port) as other:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pass_on, stream, other, bytearray())
                taken = 0
                while taken < 1 << 20:
                    data = await other.receive_some(65536)
                    taken += len(data)
                    await stream.send_all(data)
                await gate.wait()
                await _pass_on(other, stream, bytearray())

    async with (
        listening(original, host_tls(authority, 1)) as source,
        trio.open_nursery() as nursery,
    ):
        serve = partial(shut, target=at(source.port))
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        copy = tmp_path / "copy"
        async with dialling(copy, source, connect=at(port), tls=host_tls(authority, 2)):
            counters = source.queues["q"].counters
            await eventually(lambda: counters.drained().sent_once.payload_bytes > 1 << 20)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert counters.drained().sent_once.payload_bytes < 24 << 20
            gate.set()
            await copied(original, copy)
        nursery.cancel_scope.cancel()


# whom a host lets in, and what both sides say of it


def make_expired(authority: Authority) -> Path:
    return authority.host(2, days=1, begins=-5)


def make_future(authority: Authority) -> Path:
    return authority.host(2, days=9, begins=3)


def make_others(authority: Authority) -> Path:
    return authority.host(3)


def make_foreign(authority: Authority) -> Path:
    return Authority.make(authority.directory / "foreign", name="foreign").host(2)


def make_guest(authority: Authority) -> Path:
    return authority.guest("reports")


def make_revoked(authority: Authority) -> Path:
    path = authority.host(2)
    authority.revoke([path])
    return path


NOT_TWO = "expected a certificate of host 2 (cqrepl-host:2), got CN="
WRONG = [
    (make_expired, "certificate has expired", "certificate expired"),
    (make_future, "certificate is not yet valid", "bad certificate"),
    (make_foreign, "self-signed certificate in certificate chain", "unknown ca"),
    (make_revoked, "certificate revoked", "certificate revoked"),
    (
        make_others,
        f"{NOT_TWO}host 3",
        "the peer says",
    ),
    (
        make_guest,
        "expected a certificate of host 2 (cqrepl-host:2), got CN=guest reports",
        "the pe",
    ),
]


@pytest.mark.parametrize(("make", "here", "there"), WRONG, ids=[each[0].__name__ for each in WRONG])
async def test_a_wrong_certificate_is_told_at_both_ends(
    make: Callable[[Authority], Path],
    here: str,
    there: str,
    tmp_path: Path,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that has the certificate of another one would not start: the peer is made to."""
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 5})
    good, path = host_tls(authority, 1, has_list=True), make(authority)
    bad = TlsSettings(mode=TlsMode.ON, ca=good.ca, cert=path, key=path.with_suffix(".key"))
    ids: dict[object, int | None] = {make_others: 3, make_guest: None}
    if make is make_foreign:
        load = partial(_load_foreign, bad)
    else:
        load = partial(_load_any, ids.get(make, 2))
    async with listening(original, good) as source:
        monkeypatch.setattr(tlsgate, "load_credentials", load)
        with pytest.raises(Refused) as refused, one_error():
            async with dialling(tmp_path / "copy", source, tls=bad, gives_up=True):
                await trio.sleep(SECONDS)
        monkeypatch.undo()
        assert there in str(refused.value)
        await eventually(lambda: here in caplog.text)
        other = tmp_path / "other"
        async with dialling(other, source, tls=host_tls(authority, 4), host_id=4):
            await copied(original, other)
    refusals = [each for each in caplog.messages if "refused" in each and here in each]
    assert len(refusals) == 1
    assert "127.0.0.1" in refusals[0]


def _load_any(host_id: int | None, settings: TlsSettings, _: int | None) -> Credentials:
    return load_credentials(settings, host_id)


def _load_foreign(bad: TlsSettings, settings: TlsSettings, _: int | None) -> Credentials:
    """Those of a host that takes our CA, and shows a certificate of another one."""
    assert bad.cert is not None
    assert bad.key is not None
    made = load_credentials(replace(settings, ca=bad.cert.with_name("ca.pem")), 2)
    made.client.load_verify_locations(settings.ca)
    return made


@contextmanager
def one_error() -> Iterator[None]:
    """Takes the one error out of the groups that nurseries make of it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            (error,) = error.exceptions
        raise error from None


# what is no host of ours


async def s_client(source: Source, *more: str) -> str:
    """The output of OpenSSL's own client."""
    if shutil.which("openssl") is None:
        require("openssl", "openssl is not installed")
    command = ["openssl", "s_client", "-connect", at(source.port), *more]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    return (done.stdout + done.stderr).decode()


async def test_openssl_meets_tls_1_3_and_certificates_at_both_ends(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 5})
    tls, own = host_tls(authority, 1), host_tls(authority, 2)
    shown = ["-CAfile", f"{tls.ca}", "-verify_return_error"]
    good = ["-cert", f"{own.cert}", "-key", f"{own.key}"]
    with caplog.at_level(logging.INFO, "cqrepl"):
        async with listening(original, tls) as source:
            said = await s_client(source, *shown, *good)
            assert "Protocol  : TLSv1.3" in said or "New, TLSv1.3" in said
            assert "Verify return code: 0 (ok)" in said
            assert "subject=CN = host 1" in said or "subject=CN=host 1" in said
            await eventually(lambda: "CN=host 2 (cqrepl-host:2): closed without" in caplog.text)
            said = await s_client(source, *shown, "-ign_eof")
            assert "certificate required" in said or "alert number 116" in said
            await eventually(lambda: "expected a certificate, got none" in caplog.text)
            said = await s_client(source, *shown, *good, "-tls1_2")
            assert "alert protocol version" in said
            await eventually(lambda: "expected TLS 1.3, got an older one" in caplog.text)
            async with dialling(tmp_path / "copy", source, tls=own):
                await copied(original, tmp_path / "copy")


async def test_bytes_that_are_no_tls_are_refused_in_one_line(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 5})
    async with listening(original, host_tls(authority, 1)) as source:
        with pytest.raises(Refused) as refused, one_error():
            async with dialling(tmp_path / "copy", source, gives_up=True):
                await trio.sleep(SECONDS)
        assert str(refused.value).endswith(f"the peer says: {EXPECTED}")
        assert [each for each in caplog.messages if EXPECTED in each and "127.0.0.1" in each]
        rubbish = (b"GET / HTTP/1.1\r\n\r\n", b"\x16" + bytes(600), b"\x16\x03\x01\xff\xff")
        for data in rubbish:
            caplog.clear()
            async with await trio.open_tcp_stream("127.0.0.1", source.port or 0) as stream:
                await stream.send_all(data)
                await stream.send_eof()
                with trio.fail_after(SECONDS), suppress(trio.BrokenResourceError):
                    while await stream.receive_some(4096):
                        pass
            await eventually(lambda: len(caplog.messages) == 1)
            assert "127.0.0.1" in caplog.messages[0]


async def test_a_host_with_tls_says_that_its_peer_has_none(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 5})
    options: dict[str, Any] = {"listen": LOOPBACK} | BEATS
    async with serve_source({"q": original}, **options) as source:
        tls = host_tls(authority, 2)
        async with dialling(tmp_path / "copy", source, tls=tls):
            await eventually(lambda: "TLS" in caplog.text and "cannot connect" in caplog.text)
    assert any("expected plain bytes, got TLS" in each for each in caplog.messages)


# hosts that are met without TLS


async def test_only_hosts_that_are_named_come_without_tls(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    fill(original, "FAST_DAILY", {0: 5})
    where = Address.parse(LOOPBACK)
    plain = PlainSettings(listen=where, networks=("127.0.0.0/8",), hosts=frozenset({2}))
    async with listening(original, replace(host_tls(authority, 1), plain=plain)) as source:
        port = source.endpoint.ports[1]
        async with dialling(copy, source, connect=at(port)):
            await copied(original, copy)
        other = tmp_path / "other"
        with pytest.raises(Refused, match="host id 2 expected, 3 came"), one_error():
            async with dialling(other, source, connect=at(port), host_id=3, gives_up=True):
                await trio.sleep(SECONDS)
    elsewhere = replace(plain, networks=("10.0.0.0/8",))
    async with listening(original, replace(host_tls(authority, 1), plain=elsewhere)) as source:
        async with dialling(copy, source, connect=at(source.endpoint.ports[1])):
            wanted = "refused: expected an address of 10.0.0.0/8 without TLS"
            await eventually(lambda: wanted in caplog.text)


async def test_plain_bytes_beyond_this_machine_are_warned_of(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 5})
    for listen, is_warned in ((LOOPBACK, False), ("0.0.0.0:0", True)):
        caplog.clear()
        async with serve_source({"q": original}, **({"listen": listen} | BEATS)):
            pass
        assert ("traffic is not encrypted" in caplog.text) == is_warned
    async with listening(original, host_tls(authority, 1), listen="0.0.0.0:0"):
        pass
    assert caplog.text.count("traffic is not encrypted") == 1


def test_required_keeps_plain_bytes_on_this_machine(authority: Authority) -> None:
    tls = replace(host_tls(authority, 1), mode=TlsMode.REQUIRED)
    for host, is_taken in (("127.0.0.1", True), ("10.0.0.1", False)):
        plain = PlainSettings(
            listen=Address(host, 0), networks=("10.0.0.0/8",), hosts=frozenset({2})
        )
        with nullcontext() if is_taken else pytest.raises(ValueError, match="mode: required"):
            replace(tls, plain=plain)


# files


def test_wrong_files_are_named(tmp_path: Path, authority: Authority) -> None:
    good, other = host_tls(authority, 1), host_tls(authority, 2)
    assert good.key is not None
    rubbish, none = tmp_path / "rubbish.pem", tmp_path / "none.pem"
    rubbish.write_text("rubbish")
    rubbish.chmod(0o600)
    open_key = tmp_path / "open.key"
    open_key.write_bytes(good.key.read_bytes())
    open_key.chmod(0o644)
    foreign = Authority.make(tmp_path / "foreign", name="foreign").directory / "ca.pem"
    wrong = [
        (replace(good, ca=none), f"{none}: cannot be read: No such file or directory"),
        (replace(good, cert=none), f"{none}: cannot be read: No such file or directory"),
        (replace(good, key=none), f"{none}: cannot be read: No such file or directory"),
        (replace(good, crl=none), f"{none}: cannot be read: No such file or directory"),
        (replace(good, ca=rubbish), f"{rubbish}: expected certificates of a CA, got "),
        (replace(good, cert=rubbish), f"{rubbish}: expected a certificate"),
        (replace(good, key=rubbish), f"{good.cert}: expected a certificate, and in {rubbish} its"),
        (replace(good, crl=good.ca), f"{good.ca}: expected a list of revoked certificates alone"),
        (replace(good, key=open_key), f"{open_key}: expected a key that only its owner can read"),
        (replace(good, key=other.key), f"{good.cert}: expected a certificate, and in {other.key}"),
        (replace(good, ca=foreign), f"{good.cert}: the certificate is not taken by {foreign}: "),
        (other, f"{other.cert}: expected a certificate of host 1 (cqrepl-host:1), got CN=host 2"),
    ]
    for settings, message in wrong:
        with pytest.raises(BadCredentials) as error:
            load_credentials(settings, 1)
        assert str(error.value).startswith(message)
        assert "\n" not in str(error.value)
    assert load_credentials(good, 1).own.hosts == {1}


def test_a_certificate_that_ends_soon_is_warned_of(authority: Authority) -> None:
    now = time.time()
    lasting = load_credentials(host_tls(authority, 1), 1)
    assert not lasting.warning(now)
    assert "ends in 29 days" in lasting.warning(lasting.own.ends - 29 * 86_400)
    ended = load_credentials(tls_of(authority, authority.host(2, days=1, begins=-5)), 2)
    assert "the certificate of CN=host 2 (cqrepl-host:2) has ended" in ended.warning(now)
    assert "certificate has expired" in ended.stale


async def test_a_reload_ends_only_who_is_revoked(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    original = tmp_path / "original"
    fill(original, "FAST_DAILY", {0: 5})
    tls = host_tls(authority, 1, has_list=True)
    copies = {each: tmp_path / f"copy {each}" for each in (2, 3)}
    async with listening(original, tls) as source, AsyncExitStack() as stack:
        for each, copy in copies.items():
            sink = dialling(copy, source, tls=host_tls(authority, each), host_id=each)
            await stack.enter_async_context(sink)
            await copied(original, copy)
        endpoint = source.endpoint
        pumps = {each: endpoint.connections[each][0] for each in copies}
        authority.revoke([authority.directory / "host-3.pem"])
        assert endpoint.gate.credentials is not None
        endpoint.gate.take(await endpoint.gate.read_again(tls))
        await eventually(lambda: 3 not in endpoint.connections)
        await eventually(lambda: "certificate revoked" in caplog.text)
        more = tmp_path / "more"
        async with dialling(more, source, tls=host_tls(authority, 4), host_id=4):
            await copied(original, more)
        assert endpoint.connections[2][0] is pumps[2]
    assert f"the certificate of CN=host 3 (cqrepl-host:3) is revoked by {tls.crl}" in caplog.text
