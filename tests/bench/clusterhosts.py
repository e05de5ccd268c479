"""The cost of hosts that `cqrepl run` runs from one file of a cluster.

    python -m tests.bench.clusterhosts [--queues 1000] [--mesh 10] [--seconds 30]

First `cqrepl config check` of a file with so many queues. Then one host that leads all of them: the
time until it listens, and its private memory. Last three hosts that each lead a part of `--mesh`
queues and take in the others: the share of a core that each takes at rest, beside a process that
does nothing but sleep for a millisecond, again and again.
"""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from cqrepl.bench.processes import running
from cqrepl.bench.report import scratch
from tests.bench.idle import MODULE, shares
from tests.bench.rounds import asked, await_copies
from tests.support.ports import reserved_port
from tests.support.samples import fill

IDS = (1, 2, 3)


def cluster_file(folder: Path, masters: Iterable[int]) -> Path:
    lines = ["cluster:", "  context:", f"    basePath: {folder}/$hostId"]
    for each in IDS:
        address = f"127.0.0.1:{reserved_port()}"
        lines.append(f'  host{each}: {{hostId: {each}, connectUri: "{address}"}}')
    lines.append("queues:")
    for number, master in enumerate(masters):
        lines.append(f"  queue-{number}: {{masterId: {master}, acknowledge: true}}")
    path = folder / "cluster.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def host_words(folder: Path, path: Path, host_id: int) -> tuple[object, ...]:
    return ("run", "-c", path, "--host-id", host_id, "--run-dir", folder / "run")


def config_check(folder: Path, path: Path) -> tuple[float, float]:
    """Seconds, and seconds of processor time, that it takes."""
    began = time.monotonic()
    with running(folder, MODULE, "config", "check", path) as process:
        cpu_s = process.wait()
    return time.monotonic() - began, cpu_s


def one_host(folder: Path, path: Path) -> tuple[float, float, float]:
    """Seconds until it listens, processor time until then, and MiB of private memory."""
    began = time.monotonic()
    with running(folder, MODULE, *host_words(folder, path, 1)) as host:
        host.port()
        return time.monotonic() - began, host.cpu_s(), host.private_mib()


def mesh(folder: Path, path: Path, masters: list[int], seconds: float) -> list[float]:
    """The share of a core that each host takes, and the peer's."""
    for number, master in enumerate(masters):
        fill(folder / str(master) / f"queue-{number}", "FAST_DAILY", {0: 10})
    with ExitStack() as stack:
        words = [host_words(folder, path, each) for each in IDS]
        hosts = [stack.enter_context(running(folder, MODULE, *each)) for each in words]
        pairs = [
            (folder / str(master) / f"queue-{number}", folder / str(each) / f"queue-{number}")
            for number, master in enumerate(masters)
            for each in IDS
        ]
        await_copies(pairs)
        return shares(hosts, seconds)


def main() -> None:
    arguments = asked(__doc__, queues=1000, mesh=10, seconds=30.0)
    with scratch() as folder:
        path = cluster_file(folder, [1] * arguments.queues)
        taken_s, cpu_s = config_check(folder, path)
        print(
            f"config check of {arguments.queues} queues: {taken_s:.2f} s, {cpu_s:.2f} s of a core"
        )
        for again in ("new", "there"):
            taken_s, cpu_s, mib = one_host(folder, path)
            print(
                f"one host with {arguments.queues} queues that are {again}: listens after"
                f" {taken_s:.1f} s, {cpu_s:.1f} s of a core, {mib:.0f} MiB",
                flush=True,
            )
    with scratch() as folder:
        masters = [IDS[number % len(IDS)] for number in range(arguments.mesh)]
        path = cluster_file(folder, masters)
        *hosts, peer = mesh(folder, path, masters, arguments.seconds)
        told = ", ".join(f"{each:.2%}" for each in hosts)
        print(f"three hosts with {arguments.mesh} queues at rest: {told}; sleeper {peer:.2%}")


if __name__ == "__main__":
    main()
