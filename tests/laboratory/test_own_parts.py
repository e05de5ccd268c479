"""Programs, services, workloads, checks and faults of a user in the laboratory."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from cqrepl.net.program import Program
from cqrepl.protocol.subhandler import LinkView
from cqrepl.surroundings import Surroundings, surroundings
from cqrepl.testing.__main__ import main
from cqrepl.testing.experiment import Scene
from cqrepl.testing.faultkinds import SERVICE_FIRST
from cqrepl.testing.faults import Injector
from cqrepl.testing.laboratory import Outcome, run
from cqrepl.testing.plan import AWAY, Fault, Kind, RunPlan
from cqrepl.testing.shortener import shortened
from cqrepl.testing.site import HostGoneError, Site
from tests.laboratory import registered
from tests.support.schedules import schedule

PAGE = Path(__file__).parents[2] / "docs" / "laboratory.md"
SECONDS = 20.0


def with_register(plan: RunPlan, service: Any = registered.register, **parts: Any) -> Outcome:
    checks = registered.checks
    return run(plan, services=[service], workload=registered.ask, checks=checks, **parts)


def at_services(seed: int) -> RunPlan:
    """Faults at the service, and none at queues."""
    return schedule(seed=seed, seconds=SECONDS, rate=2.0).with_parts(1, ())


def fates(outcome: Outcome) -> Counter[str]:
    return Counter(each.fate.name for each in outcome.history.operations)


@pytest.mark.parametrize("seed", range(4))
def test_a_service_that_keeps_its_word(seed: int) -> None:
    outcome = with_register(at_services(seed))
    assert outcome.broken is None, outcome.broken
    assert fates(outcome)["RETURNED"] > 10


def test_the_same_seed_is_the_same_run() -> None:
    one, other = (with_register(at_services(2)) for _ in range(2))
    assert one.digest == other.digest
    assert [*map(str, one.history.operations)] == [*map(str, other.history.operations)]


async def keeps_in_memory(site: Site) -> None:
    """Forgets what it has told as written when its process is killed."""
    value = [b"0"]

    async def answer(stream: trio.SocketStream) -> None:
        asked = await stream.receive_some(1)
        if asked != b"?":
            value[0] = asked
        await stream.send_all(value[0])

    await site.serve(answer, registered.PORT)


async def syncs_nothing(site: Site) -> None:
    """Forgets it when its machine loses its power."""

    async def answer(stream: trio.SocketStream) -> None:
        place, asked = site.folder / "value", await stream.receive_some(1)
        if asked != b"?":
            place.write_bytes(asked)
        await stream.send_all(place.read_bytes() if place.exists() else b"0")

    await site.serve(answer, registered.PORT)


@pytest.mark.parametrize("service", [keeps_in_memory, syncs_nothing])
def test_a_service_that_does_not_is_found(service: Any) -> None:
    outcomes = (with_register(at_services(seed), service) for seed in range(60))
    found = next((each for each in outcomes if each.broken is not None), None)
    assert found is not None
    assert found.check == "linearizable_history", found.broken
    short = shortened(found, runs_max=12)
    assert len(short.plan.faults) <= len(found.plan.faults)
    assert short.check == found.check


@pytest.mark.parametrize("kind", [Kind.KILL, Kind.FREEZE, Kind.STOP, Kind.POWER_CUT, Kind.STALL])
def test_each_fault_of_a_service_is_felt(kind: Kind) -> None:
    """A question has no answer meanwhile, and has one afterwards."""
    fault = [Fault(3.0, kind, SERVICE_FIRST, host, 8.0) for host in (1, 2)]
    outcome = with_register(schedule(*fault[: 1 if kind.value in AWAY else 2], rate=2.0))
    assert outcome.broken is None, outcome.broken
    during = [each for each in outcome.history.operations if 3.5 < each.at < 8.5]
    assert during
    assert not any(each.is_known for each in during)
    assert outcome.history.operations[-1].at > 11.0
    assert sum(each.is_known for each in outcome.history.operations) > len(during) / 2


def test_a_workload_goes_with_the_power_of_its_host() -> None:
    asked: list[tuple[int, float]] = []

    async def counts(site: Site) -> None:
        while True:
            asked.append((site.number, trio.current_time()))
            await trio.sleep(0.5)

    plan = schedule(Fault(4.0, Kind.POWER_CUT, 2, 0, 3.0), Fault(4.0, Kind.KILL, 1, 0, 3.0))
    assert run(plan, workload=counts).broken is None
    away = {host for host, at in asked if 4.1 < at < 6.9}
    assert away == {1}
    assert {host for host, at in asked if at > 8.0} == {1, 2}


class Greeter:
    """Counts its peers, and has a task."""

    kinds = ()

    def __init__(self, host: int, around: Surroundings) -> None:
        self.host, self.around = host, around
        self.peers: list[int] = []
        self.node: Any = None

    async def connected(self, link: LinkView) -> None:
        assert surroundings() is self.around
        self.peers.append(link.remote_id)

    async def told(self, link: LinkView, event: object) -> None:
        """Nothing is told."""

    async def run(self, host: Any) -> None:
        assert surroundings() is self.around
        self.node = host
        await trio.sleep_forever()


def test_a_program_is_made_for_each_start_of_each_host() -> None:
    made: list[Greeter] = []

    def make(host: int, around: Surroundings) -> Program:
        made.append(Greeter(host, around))
        return made[-1]

    def met(scene: Scene) -> Iterator[str]:
        for site in scene.workloads.values():
            program = site.program(Greeter)
            if program is None or not program.peers or program.node is None:
                yield f"{site.name} has met no peer"

    async def idle(site: Site) -> None:
        await trio.sleep_forever()

    kill = Fault(5.0, Kind.KILL, 2, 0, 0.5)
    for roles in ({}, {"both_ways": True}, {"changing": True, "hosts": 3}):
        made.clear()
        outcome = run(
            schedule(kill, seconds=8.0, rate=2.0, **roles),
            programs=[make], workload=idle, checks=[met],
        )  # fmt: skip
        assert outcome.broken is None, outcome.broken
        assert sorted(each.host for each in made) == [1, 2, 2, *([3] if "hosts" in roles else [])]


def test_what_is_done_in_a_host_goes_with_it() -> None:
    ends: list[HostGoneError] = []

    async def waits(site: Site) -> None:
        async def forever(node: Any) -> None:
            await trio.sleep_forever()

        while True:
            try:
                await site.in_host(forever)
            except HostGoneError as error:
                ends.append(error)
            await trio.sleep(0.5)

    plan = schedule(Fault(5.0, Kind.KILL, 2, 0, 2.0), both_ways=True, rate=2.0)
    assert run(plan, workload=waits).broken is None
    has_begun = [each.has_begun for each in ends if "host 2" in str(each)]
    assert has_begun.count(True) == 1
    assert has_begun.count(False) >= 2


def test_what_a_workload_appends_is_for_its_own_checks() -> None:
    """With `writes`; else it is an excerpt that nothing wrote."""

    async def append(text: bytes, host: Any) -> Any:
        return await host.queue(f"q{host.settings.protocol.host_id}").append(text)

    async def appends(site: Site) -> None:
        while not site.quiet.is_set():
            await trio.sleep(1.0)
            with site.history.call(
                site.name, "append", value=b"from " + site.name.encode()
            ) as call:
                text = call.operation.value
                call.returned(await site.in_host(partial(append, text)))

    def kept(scene: Scene) -> Iterator[str]:
        for each in scene.history.operations:
            queue = f"q{each.who[-1]}"
            if each.is_known and any(
                each.value not in scene.content(host, queue).values() for host in scene.hosts
            ):
                yield f"{each}: and it is not everywhere"

    plan = schedule(both_ways=True, rate=2.0, seconds=5.0)
    outcome = run(plan, workload=appends, checks=[kept], writes=True)
    assert outcome.broken is None, outcome.broken
    assert fates(outcome)["RETURNED"] > 5
    assert run(plan, workload=appends, checks=[kept]).check == "altered"


def test_copies_are_compared_once_programs_have_appended_what_was_left_to_do() -> None:
    """A service works off what clients asked for while faults came."""

    async def append(nth: int, host: Any) -> Any:
        return await host.queue("q1").append(b"left %d" % nth)

    async def works(site: Site) -> None:
        await site.quiet.wait()
        for nth in range(30 if site.number == 1 else 0):
            await trio.sleep(1.0)
            await site.in_host(partial(append, nth))

    def kept(scene: Scene) -> Iterator[str]:
        for host in scene.hosts:
            left = [each for each in scene.content(host, "q1").values() if b"left" in each]
            if len(left) != 30:
                yield f"host {host} has {len(left)} of 30"

    plan = schedule(both_ways=True, rate=2.0, seconds=5.0)
    outcome = run(plan, workload=works, checks=[kept], writes=True)
    assert outcome.broken is None, outcome.broken


def test_a_fault_of_a_user_is_drawn_and_done() -> None:
    done: list[int] = []

    async def flips(scene: Scene, fault: Fault) -> None:
        done.append(fault.host)
        scene.hosts[fault.host].kill()
        await trio.sleep(fault.lasting)
        scene.hosts[fault.host].start()

    plan = schedule(seconds=40.0, rate=2.0).with_parts(0, ["flip"])
    outcome = run(plan, faults={"flip": flips})
    assert outcome.broken is None, outcome.broken
    assert len(done) == outcome.injected["flip"] == len(plan.faults) > 1
    assert any(each.where == "fault" and each.text.startswith("flip") for each in outcome.story)


def test_each_kind_of_fault_is_in_the_table() -> None:
    assert set(Injector.ACTS) == set(Kind)


def test_plans_without_parts_keep_their_keys() -> None:
    plain = RunPlan.of(3, SECONDS)
    assert plain.with_parts(0, ()) == plain
    keys = {plain.key, plain.with_parts(1, ()).key, plain.with_parts(0, ["x"]).key}
    assert len(keys) == 3
    assert plain.with_parts(1, ()).faults[: len(plain.faults)] == plain.faults


# ---- the command ---------------------------------------------------------------------------------


def invoke(*words: object) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_takes_a_module(tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["--seeds", "1..2", "--seconds", 5, "--roles", "one-way", "--results", results]
    own = [*words, "--program", "tests.laboratory.registered"]
    assert invoke(*own).exit_code == 0
    assert invoke(*words).stdout.count("trace") == 2, "these are other runs"
    assert invoke(*own).stdout.count("trace") == 0
    told = invoke("--program", own[-1], "--seed", 1, "--seconds", 5, "--roles", "one-way")
    assert "history     host 1: write" in told.stdout


@pytest.mark.parametrize(
    ("module", "why"),
    [("tests.laboratory.none", "No module named"), ("math", "expected one of programs, workload")],
)
def test_a_module_that_has_nothing_of_it(module: str, why: str) -> None:
    result = invoke("--seed", 1, "--program", module)
    assert result.exit_code == 2
    assert f"--program {module}: " in result.stderr
    assert why in result.stderr


def test_the_program_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found out, by the command that stands there."""
    page = PAGE.read_text()
    [text] = re.findall(r"```python\n(# register.py.*?)```", page, re.DOTALL)
    [words] = re.findall(r"\$ python -m cqrepl.testing (--program register .*)", page)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "register.py").write_text(text)
    result = invoke(*words.split())
    assert result.exit_code == 1
    assert "linearizable_history: key None: after " in result.stdout
