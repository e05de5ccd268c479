"""Asks hosts for their storages: lists them, shows one, compares those of several hosts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import trio

from cqrepl.commands import outcome
from cqrepl.config.persistkinds import PREFIX
from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.units import plural
from cqrepl.host import serve_host
from cqrepl.net.address import Address
from cqrepl.net.errors import NetError, Refused, Unreachable
from cqrepl.net.settings import NetSettings
from cqrepl.net.tlssettings import TlsSettings
from cqrepl.persist.persistdesk import Conversation, PersistDesk, SyncFailed
from cqrepl.persist.storage.syncwords import Row
from cqrepl.protocol import HeartbeatSettings, ProtocolSettings
from cqrepl.queue.format.index import format_index
from cqrepl.replicator.settings import HostSettings
from cqrepl.service.fieldwords import FieldWords

GREETING_SECONDS: Final = 5.0  # from the first attempt to a host that says who it is
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AT_MAX_MS: Final = 250_000_000_000_000  # the year 9892
_BEATS: Final = HeartbeatSettings(interval_ms=1000, timeout_ms=5000)


@dataclass(slots=True)
class _Told:
    """The storages of one host, by their names."""

    address: Address
    conversation: Conversation
    rows: dict[str, Row] = field(default_factory=dict)


def list_storages(hosts: str, group: str, tls: TlsSettings, *, as_json: bool) -> int:
    """Prints them; the exit code."""

    async def work(told: list[_Told]) -> int:
        (one,) = told
        for row in one.rows.values():
            output.write_text(output.json_line(_fields(row)) if as_json else _line(row))
        if not as_json:
            applied = one.conversation.applied
            backups = f"; applied by the backups {applied}" if applied else ""
            count = plural(len(one.rows), "storage")
            at = format_index(one.conversation.pos)
            output.write_text(f"{count} at {at}, by {one.address}{backups}\n")
        is_damaged = any(each.damage for each in one.rows.values())
        return exitcodes.STOPPED if is_damaged else exitcodes.OK

    return _asked("ls", hosts, group, tls, work, is_first=True)


def show_storage(hosts: str, group: str, name: str, tls: TlsSettings, *, as_json: bool) -> int:
    """Prints one; the exit code."""

    async def work(told: list[_Told]) -> int:
        (one,) = told
        row = one.rows.get(name)
        if row is None:
            raise Refused(f"expected a storage of group {group!r}, got {name!r}")
        said = await one.conversation.ask(_sum_request(row.id, row.first, row.next))
        crc = said.text("why") or f"{said.number('crc'):08x}"
        values = _fields(row) | {"crc32": crc}
        if as_json:
            output.write_text(output.json_line(values))
        else:
            output.write_text("".join(f"{key:>10}  {value}\n" for key, value in values.items()))
        return exitcodes.STOPPED if row.damage or said.text("why") else exitcodes.OK

    return _asked("show", hosts, group, tls, work, is_first=True)


def verify_storages(hosts: str, group: str, tls: TlsSettings, *, as_json: bool) -> int:
    """Compares them; the exit code."""

    async def work(told: list[_Told]) -> int:
        if len(told) < 2:
            raise BadArguments("--at: expected at least two hosts to compare, got one")
        names = sorted({name for each in told for name in each.rows})
        findings = {name: [each async for each in _differences(told, name)] for name in names}
        for name, found in findings.items():
            if as_json:
                line = {"v": 1, "storage": name, "equal": not found, "differs": found}
                output.write_text(output.json_line(line))
            elif found:
                output.write_text("".join(f"{name}: {each}\n" for each in found))
        bad = sum(bool(found) for found in findings.values())
        if not as_json:
            where = (
                "at one position" if _is_at_one(told) else "at different positions, so only items"
            )
            end = f"{bad} differ" if bad else "all are equal"
            output.write_text(f"{plural(len(names), 'storage')} compared {where}: {end}\n")
        return exitcodes.STOPPED if bad else exitcodes.OK

    return _asked("verify", hosts, group, tls, work, is_first=False)


async def _differences(told: list[_Told], name: str) -> AsyncIterator[str]:
    """The ways in which a storage is not the same on these hosts."""
    rows = {each.address: each.rows.get(name) for each in told}
    for address, row in rows.items():
        if row is not None and row.damage:
            yield f"{address}: it is damaged: {row.damage}"
    there = {address: row for address, row in rows.items() if row is not None}
    if _is_at_one(told):
        for address in rows.keys() - there.keys():
            yield f"{address}: it is not there"
        heads = {at: _head(row) for at, row in sorted(there.items(), key=str)}
        if len(set(heads.values())) > 1:
            yield "; ".join(f"{at}: {head}" for at, head in heads.items())
            return
    gen = max(row.gen for row in there.values())
    alike = {address: row for address, row in there.items() if row.gen == gen}
    first = max(row.first for row in alike.values())
    next_ = min(row.next for row in alike.values())
    sums = {}
    for each in told:
        row = alike.get(each.address)
        if row is not None and first < next_:
            said = await each.conversation.ask(_sum_request(row.id, first, next_))
            sums[each.address] = said.text("why") or f"{said.number('crc'):08x}"
    if len(set(sums.values())) > 1:
        shown = "; ".join(f"{address}: {crc}" for address, crc in sums.items())
        yield f"items {first} to {next_ - 1}: {shown}"


def _head(row: Row) -> str:
    return f"{row.kind}, gen {row.gen}, {row.first} to before {row.next}"


def _is_at_one(told: list[_Told]) -> bool:
    return len({each.conversation.pos for each in told}) == 1


def _sum_request(id_: int, first: int, next_: int) -> FieldWords:
    return FieldWords("SUM_REQ", {"id": id_, "first": first, "next": next_})


def _asked(
    name: str,
    hosts: str,
    group: str,
    tls: TlsSettings,
    work: Callable[[list[_Told]], Awaitable[int]],
    *,
    is_first: bool,
) -> int:
    """The exit code of work with hosts that have told their storages.

    Args:
        is_first: one host is enough, the first that answers.
    """

    async def run() -> int:
        told: list[_Told] = []
        whys: list[str] = []
        async with trio.open_nursery() as nursery:
            for address in _addresses(hosts):
                found = await nursery.start(_visit, address, group, tls)
                if isinstance(found, _Told):
                    told.append(found)
                else:
                    whys.append(f"{address}: {found}")
                if told and is_first:
                    break
            if not told or (whys and not is_first):
                nursery.cancel_scope.cancel()
                raise Unreachable("; ".join(whys))
            code = await work(told)
            output.flush()
            nursery.cancel_scope.cancel()
        return code

    return outcome.guarded(f"cqrepl persist {name}", lambda: trio.run(run))


def _addresses(hosts: str) -> list[Address]:
    try:
        found = [Address.parse(each.strip()) for each in hosts.split(",") if each.strip()]
    except ValueError as error:
        raise BadArguments(f"--at: {error}") from None
    if not found:
        raise BadArguments("--at: expected HOST:PORT, got nothing")
    return found


async def _visit(
    address: Address,
    group: str,
    tls: TlsSettings,
    *,
    task_status: trio.TaskStatus[_Told | str],
) -> None:
    """Stays with one host, once it has told its storages; or says why it has not."""
    why = ""
    try:
        async with _talking(address, group, tls) as conversation:
            told = _Told(address, conversation)
            rows = [_named(each) for each in await conversation.list_all()]
            told.rows = {each.name: each for each in rows}
            task_status.started(told)
            await trio.sleep_forever()
    except* (NetError, OSError, SyncFailed, trio.TooSlowError) as errors:
        why = str(_first_of(errors)) or "it was not reached"
    if why:
        task_status.started(why)


def _named(row: Row) -> Row:
    """One whose CREATE was lost has no name: its id stands there."""
    return row if row.name else replace(row, name=f"{row.id:#x}")


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


@asynccontextmanager
async def _talking(address: Address, group: str, tls: TlsSettings) -> AsyncIterator[Conversation]:
    desk = PersistDesk([])
    settings = HostSettings(
        net=NetSettings(connect=address, tls=tls),
        protocol=ProtocolSettings(guest="cqrepl persist", heartbeat=_BEATS),
    )
    with trio.fail_after(GREETING_SECONDS):  # a dialler would try this host again and again
        await (await trio.open_tcp_stream(address.host, address.port)).aclose()
    async with serve_host(settings, sources={}, sinks={}, program=desk):
        with trio.move_on_after(GREETING_SECONDS):
            while desk.link() is None:
                await trio.sleep(0.005)
        link = desk.link()
        if link is None:
            raise SyncFailed("it has no storages, or was not reached")
        async with desk.asking(link, PREFIX + group) as conversation:
            yield conversation


def _mode(row: Row) -> str:
    if row.timeout_ms < 0:
        return "-"
    return f"sync {row.timeout_ms}ms" if row.timeout_ms else "async"


def _fields(row: Row) -> dict[str, object]:
    at = _EPOCH + timedelta(milliseconds=min(row.at, _AT_MAX_MS))
    return {
        "v": 1,
        "name": row.name,
        "id": f"{row.id:#x}",
        "kind": row.kind.value,
        "items": row.next - row.first,
        "first": row.first,
        "next": row.next,
        "gen": row.gen,
        "reset_at": at.isoformat(timespec="milliseconds") if row.at else None,
        "epoch": row.epoch,
        "mode": _mode(row),
        "damage": row.damage or None,
    }


def _line(row: Row) -> str:
    numbers = f"{row.next - row.first:>9,} items  next {row.next:<9} gen {row.gen:<4}"
    damage = f"  damaged: {row.damage}" if row.damage else ""
    return f"{row.name:<30}  {row.kind.value:<8}  {numbers} {_mode(row)}{damage}\n"
