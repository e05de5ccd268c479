"""`cqrepl plan promote` and `cqrepl promote`, of hosts that run."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.support.commands import commands
from tests.support.hostpairs import Pair
from tests.support.replicas import copied, more_excerpts
from tests.support.samples import fill


async def planned(pair: Pair, *words: object) -> str:
    command = [sys.executable, "-P", "-m", "cqrepl", "plan", "promote"]
    command += ["--run-dir", str(pair.run_dir), *map(str, words)]
    run = partial(subprocess.run, command, capture_output=True, text=True, check=True)
    return str((await trio.to_thread.run_sync(run)).stdout)


async def test_a_queue_is_promoted_as_planned(tmp_path: Path) -> None:
    async with commands() as start:
        pair = Pair(tmp_path, start, "$hostId")
        one, two = (tmp_path / host / "a" for host in ("1", "2"))
        for name in ("a", "b"):
            fill(tmp_path / "1" / name, "FAST_DAILY", {0: 10})
        await pair.begin()
        await copied(one, two)
        asked = ("a", "--to", 2, "--host-id", 1, "--json")
        plan: Any = json.loads(await planned(pair, *asked))
        assert (plan["epoch"], plan["leader"], plan["was"], plan["fenced"]) == (1, 2, 1, [1])
        shown = await planned(pair, "a", "--to", 2, "--host-id", 2)
        assert "queue 'a': host 2 would lead it in epoch 1, after host 1, from 0x" in shown
        done: Any = json.loads(await pair.told("promote", "a", "--host-id", 2, "--json"))
        wanted = plan.keys() - {"host", "do"}
        assert {key: done[key] for key in wanted} == {key: plan[key] for key in wanted}
        more_excerpts(two, 10, 5)
        await copied(two, one)
        for host_id, role in ((1, "sink"), (2, "source")):
            shown = json.loads(await pair.told("status", "--host-id", host_id, "--json"))
            (led,) = [each for each in shown["queues"] if each["name"] == "a"]
            epoch = {"number": 1, "leader": 2, "start": plan["start"], "leads": host_id == 2}
            assert (led["role"], led["epoch"]) == (role, epoch)
            assert [each["epoch"] for each in shown["queues"] if each["name"] == "b"] == [None]
        page = await pair.told("status")
        for leads in ("host 2 leads it", "this host leads it"):
            assert f"queue a: epoch 1: {leads} from {plan['start']} on" in page
        refused = await pair.tell("promote", "a", "--host-id", 2)
        assert (refused.returncode, "host 2 leads it already" in refused.stderr) == (5, True)
        unknown = await pair.tell("promote", "c", "--to", 2)
        assert (unknown.returncode, "one of the queues" in unknown.stderr) == (2, True)
        pair.write(a=2, b=1)
        for host_id in (1, 2):  # the file says what is so
            said = await pair.told("reload", "--host-id", host_id)
            assert "queue 'a' is streamed from host 2, was from host 1" in said
        await pair.told("status", "--host-id", 2, "--max-lag", 0)
        await pair.one.terminate()
        more_excerpts(two, 15, 5)
        while True:  # host 2 may not have heard yet that host 1 is gone
            late = await pair.tell("status", "--host-id", 2, "--max-lag", 0, "--json")
            (led,) = [each for each in json.loads(late.stdout)["queues"] if each["name"] == "a"]
            if [(each["host"], each["state"], each["lag"]) for each in led["sinks"]] == [
                (1, "away", 5)
            ]:
                break
        assert late.returncode == 1
        await pair.two.terminate()
