"""Moments as numbers: nanoseconds since 1970, UTC."""

from datetime import UTC, datetime


def since_1970_ns(moment: datetime) -> int:
    """Nanoseconds of a moment since 1970; one without an offset is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
