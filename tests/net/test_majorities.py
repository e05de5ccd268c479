"""A majority of the members goes on, and has all that was safe."""

from functools import partial
from pathlib import Path

from cqrepl import AckOutcome, AckPolicy
from cqrepl.net.threads import in_thread
from cqrepl.replicator.settings import SourceSettings
from tests.support.promotions import cluster
from tests.support.samples import read

MEMBERS = 5


async def test_five_members_lose_their_leader_and_one_more(tmp_path: Path) -> None:
    """Writes wait for two other hosts before and after, and nothing that was safe is missing."""
    policy = AckPolicy(level="synced", from_="majority")
    async with cluster(tmp_path, MEMBERS, source=SourceSettings(policies={"a": policy})) as hosts:
        await hosts.followed(dict.fromkeys(range(2, MEMBERS + 1), 3))
        led = hosts.hosts[1].queue("a").leading
        safe = await in_thread(partial(led.append, [b"safe"]))
        assert safe.is_acked
        await hosts.kill(1)
        await hosts.kill(3)
        done = await hosts.hosts[2].leaders.promote("a")
        assert (done.fenced, done.unreached, done.is_risky) == ((4, 5), (1, 3), False)
        leads = hosts.hosts[2].queue("a").leading
        more = await in_thread(partial(leads.append, [b"more"]))
        assert (int(more), more.outcome) == (safe + 1, AckOutcome.ACKED)
        await hosts.start(1, 3)
        await hosts.follow(2)
        assert read(hosts.path(1)) == read(hosts.path(2))
        assert len(read(hosts.path(2))) == 5
