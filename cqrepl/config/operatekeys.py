"""The keys by which a host is secured and operated."""

from typing import Final

from cqrepl.config.keykinds import Key, section_below
from cqrepl.config.tlskeys import PLAIN
from cqrepl.config.valuekinds import (
    ARGUMENTS,
    DAYS,
    FILE,
    LISTENING,
    PERCENT,
    choice,
    integer,
    time,
)
from cqrepl.net.limits import LimitSettings
from cqrepl.net.tlssettings import TlsMode
from cqrepl.page.settings import AlarmSettings

_COST: Final = LimitSettings()
TLS: Final = section_below(
    "tls",
    Key(
        name="mode",
        kind=choice(*(each.value for each in TlsMode)),
        says="off: none; on: TLS 1.3 with certificates at both ends, but for hosts in `plain`; "
        "required: and these are on this machine",
        default=TlsMode.OFF.value,
    ),
    Key(
        name="ca",
        kind=FILE,
        says="certificates that sign those of peers (PEM); $hostId stands for the host's id",
        is_live=True,
    ),
    Key(
        name="cert",
        kind=FILE,
        says="this host's certificate, of URI cqrepl-host:ID; $hostId stands for the id",
        is_live=True,
    ),
    Key(
        name="key",
        kind=FILE,
        says="its private key, which only its owner can read; $hostId stands for the id",
        is_live=True,
    ),
    Key(
        name="crl",
        kind=FILE,
        says="list of revoked certificates; none are if not given",
        is_live=True,
    ),
    Key(
        name="plain",
        kind=PLAIN,
        says="hosts that are met without TLS, as Java's: where they are waited for, from which "
        "networks they come, and their ids",
    ),
)

LIMITS: Final = section_below(
    "limits",
    Key(
        name="connections",
        kind=integer(1, 100_000),
        says="to each address that is listened on, at a time",
        default=_COST.connections,
        is_live=True,
    ),
    Key(
        name="perAddress",
        kind=integer(1, 100_000),
        says="connections of one machine that have not said who they are; the oldest goes",
        default=_COST.per_address,
        is_live=True,
    ),
    Key(
        name="unauthenticated",
        kind=integer(1, 100_000),
        says="the same of all machines together",
        default=_COST.unauthenticated,
        is_live=True,
    ),
    Key(
        name="handshake",
        kind=time(0.1, 600),
        says="longest handshake of TLS",
        default=_COST.handshake_seconds,
        is_live=True,
    ),
    Key(
        name="guestRequests",
        kind=integer(0, 10_000_000),
        says="requests and registrations a second of all guests together; 0: any number. A host "
        "that leads needs the rest of its time for its followers",
        default=_COST.guest_requests_per_s,
        is_live=True,
    ),
)

_USUAL: Final = AlarmSettings()
ALARMS: Final = section_below(
    "alarms",
    Key(
        name="lag",
        kind=time(0, 10_000_000),
        says="a sink that has lacked something for so long",
        default=_USUAL.lag_seconds,
    ),
    Key(
        name="diskFree",
        kind=PERCENT,
        says="less of the disk of a queue is free",
        default=_USUAL.disk_free,
    ),
    Key(
        name="certificate",
        kind=DAYS,
        says="the certificate of this host ends within so many days",
        default=_USUAL.certificate_days,
    ),
    Key(
        name="onAlarm",
        kind=ARGUMENTS,
        says="a command that is run, without a shell, with RAISED or CLEARED, the alarm, its "
        "subject and a sentence behind its arguments",
        default=(),
    ),
)
PAGE: Final = section_below(
    "page",
    Key(
        name="listen",
        kind=LISTENING,
        says="address of the status page, metrics and health; beyond this machine with TLS and a "
        "token. Takes the extra 'page'",
    ),
    Key(
        name="token",
        kind=FILE,
        says="file with what readers have to show; $hostId stands for the host's id",
    ),
)
