"""The settings by which a host tells its operators how it does, from the keys of its process."""

from pathlib import Path

from cqrepl.config.errors import ConfigError
from cqrepl.config.hostplan import HostPlan
from cqrepl.config.valuekinds import HOST_ID_SIGN
from cqrepl.net.address import Address
from cqrepl.page.settings import AlarmSettings, PageSettings
from cqrepl.typed.schemafile import SchemaError, read_schema


def page_settings(plan: HostPlan) -> PageSettings:
    """The place where a host gives pages.

    Raises:
        ConfigError: it would be reached from other machines without TLS or a token.
    """
    listen, token = plan.process["page.listen"], plan.process["page.token"].value
    assert isinstance(listen.value, Address | None)
    assert isinstance(token, Path | None)
    own = str(plan.settings.protocol.host_id)
    path = None if token is None else Path(str(token).replace(HOST_ID_SIGN, own))
    try:
        return PageSettings(listen=listen.value, token=path, tls=plan.settings.net.tls)
    except ValueError as error:
        raise ConfigError(plan.file, listen.spot, str(error)) from None


def schema_texts(plan: HostPlan) -> dict[str, str]:
    """The JSON Schemas of queues, by their names or patterns.

    Raises:
        ConfigError: a file cannot be read, or is no schema.
    """
    given = plan.process["schemas"]
    assert isinstance(given.value, dict)
    found = {}
    for queues, path in given.value.items():
        try:
            read_schema(path)
            found[str(queues)] = path.read_text(encoding="utf-8")
        except (SchemaError, OSError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            where = f"{path}: " if isinstance(error, OSError) else ""
            message = f"expected a schema for {queues!r} in 'schemas', got {where}{said}"
            raise ConfigError(plan.file, given.spot, message) from None
    return found


def alarm_settings(plan: HostPlan) -> AlarmSettings:
    """The thresholds of alarms of a host."""
    values = {name: each.value for name, each in plan.process.items()}
    command = values["alarms.onAlarm"]
    assert isinstance(command, tuple)
    return AlarmSettings(
        lag_seconds=_number(values["alarms.lag"]),
        disk_free=_number(values["alarms.diskFree"]),
        certificate_days=_number(values["alarms.certificate"]),
        command=command,
    )


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
