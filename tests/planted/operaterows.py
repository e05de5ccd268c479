"""The mistakes in what secures hosts, and shows them to operators."""

from typing import Final

from tests.planted.plantedmistake import Planted

OPERATE_ROWS: Final = (
    Planted(
        name="certificate-of-another-host-taken",
        room="net",
        file="certificates.py",
        text="        if host_id in self.hosts:\n            return None\n",
        wrong="        if self.hosts:\n            return None\n",
        tests=("tests/net/test_tls.py",),
    ),
    Planted(
        name="revoked-certificate-taken",
        room="net",
        file="tlscredentials.py",
        text="context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF",
        wrong="context.verify_flags |= ssl.VERIFY_DEFAULT",
        tests=("tests/net/test_tls.py",),
    ),
    Planted(
        name="tls-1-2-spoken",
        room="net",
        file="tlscredentials.py",
        text="context.minimum_version = ssl.TLSVersion.TLSv1_3",
        wrong="context.minimum_version = ssl.TLSVersion.TLSv1_2",
        tests=("tests/net/test_tls.py",),
    ),
    Planted(
        name="right-of-another-queue-counts",
        room="net",
        file="rights.py",
        text="if fnmatchcase(queue, each.queues) and each.names(subject)",
        wrong="if each.names(subject)",
        tests=("tests/net/test_rights.py",),
    ),
    Planted(
        name="leader-without-right-taken",
        room="replicator",
        file="offergate.py",
        text='refusal("lead", queue.name)',
        wrong='refusal("follow", queue.name)',
        tests=("tests/net/test_rights.py",),
    ),
    Planted(
        name="half-open-of-all-not-bounded",
        room="net",
        file="doorstep.py",
        text="if len(self._machines) > self.all_max:",
        wrong="if len(self._machines) > 100 * self.all_max:",
        tests=("tests/net/test_doorstep.py",),
    ),
    Planted(
        name="page-without-its-token",
        room="page",
        file="app.py",
        text="        if not self._is_known(headers):",
        wrong="        if not self._is_known(headers) and not self._token:",
        tests=("tests/net/test_page.py",),
    ),
    Planted(
        name="alarm-not-cleared",
        room="page",
        file="monitor.py",
        text="for key in sorted(self.alarms.keys() - found.keys()):",
        wrong="for key in sorted(found.keys() - found.keys()):",
        tests=("tests/net/test_page.py",),
    ),
    Planted(
        name="retention-of-what-a-host-lacks",
        room="service",
        file="retentionrules.py",
        text="        members=members,\n    )\n    with Queue.open(path) as queue:",
        wrong="    )\n    with Queue.open(path) as queue:",
        tests=("tests/net/test_retention.py",),
    ),
)
