"""The relay of the tests as a command: what two hosts say, document by document, and faults at
exact places. `python -m tools.record --help`, from the top of the repository.

    dialler --- relay --- target

`tests/support/relay.py` says how it works, `tests/support/transcript.py` what is written down.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import trio

from tests.support.relay import (
    ROLES,
    Action,
    Address,
    OnDocument,
    Relay,
    at,
    drop_entry,
    forward_all,
)
from tests.support.transcript import TranscriptFile


def parse_address(text: str) -> Address:
    """HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"HOST:PORT expected, got {text!r}")
    return host.strip("[]"), int(port)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="record",
        description="Passes on connections, records their documents, and can fail at one of them.",
        epilog="The port is printed on stdout, alone on one line, as soon as it is listened on.",
    )
    parser.add_argument("--listen", type=parse_address, default=("127.0.0.1", 0))
    parser.add_argument("--to", type=parse_address, required=True, help="who is listened to")
    parser.add_argument("--dialler", choices=ROLES, required=True, help="the role that dials")
    parser.add_argument("--out", type=Path, help="where the transcript goes")
    parser.add_argument("--run-seconds", type=float, help="end after this time")
    parser.add_argument("--after", type=int, metavar="N", help="fail at this document ...")
    parser.add_argument("--of", choices=ROLES, help="... counted from this role, from 1")
    fault = parser.add_mutually_exclusive_group()
    fault.add_argument("--cut", action="store_true", help="close both sockets after it")
    fault.add_argument("--cut-inside", action="store_true", help="pass on half of it, then cut")
    fault.add_argument("--stall", action="store_true", help="pass on nothing after it")
    fault.add_argument("--kill", type=int, metavar="PID", help="SIGKILL this process after it")
    parsed = parser.parse_args(arguments)
    wants_fault = parsed.cut or parsed.cut_inside or parsed.stall or parsed.kill is not None
    if wants_fault != (parsed.after is not None) or wants_fault != (parsed.of is not None):
        parser.error("--after and --of go with one of --cut, --cut-inside, --stall, --kill")
    if parsed.after is not None and parsed.after < 1:
        parser.error("--after: documents are counted from 1")
    return parsed


async def run(arguments: argparse.Namespace) -> None:
    """The command, until a signal or the end of its time."""
    on_document: OnDocument = forward_all
    if arguments.after is not None:
        action = Action.STALL  # --kill too: not a byte passes while the process is killed
        if arguments.cut or arguments.cut_inside:
            action = Action.CUT if arguments.cut else Action.CUT_INSIDE
        on_document = at(arguments.after, arguments.of, action)
    file = TranscriptFile(arguments.out) if arguments.out else None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        relay = Relay(
            arguments.to,
            dialler=arguments.dialler,
            on_document=on_document,
            on_entry=file or drop_entry,
        )
        async with relay.running(arguments.listen):
            print(relay.port, flush=True)
            async with trio.open_nursery() as nursery:
                if arguments.kill is not None:
                    nursery.start_soon(kill_when_stalled, relay, arguments.kill)
                with trio.move_on_after(arguments.run_seconds or float("inf")):
                    async for _ in signals:
                        break
                nursery.cancel_scope.cancel()


async def kill_when_stalled(relay: Relay, pid: int) -> None:
    """Kills the process while nothing passes, then lets its peer see the end."""
    await relay.stalled.wait()
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    relay.cut()


def main() -> None:
    trio.run(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    main()
