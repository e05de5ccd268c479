"""The key of rights, and what stands in it."""

from typing import Final

from cqrepl.config.valuekinds import Unfit, ValueKind
from cqrepl.net.rights import ALL_USUAL, Right, Rights, rights_of
from cqrepl.protocol.settings import HOST_IDS

_SHOWN: Final = 60


def _rights(text: str) -> Rights:
    if not text:
        return ALL_USUAL
    found: dict[str, dict[str, list[str]]] = {}
    for each in (part.strip() for part in text.split(",")):
        queues, equals, peers = each.partition("=")
        if not equals or not queues or queues in found:
            raise Unfit(f"expected a queue and its peers in 'rights', got {each[:_SHOWN]!r}")
        found[queues] = {}
        for peer in peers.split():
            of, equals, words = peer.partition("=")
            is_number = of.isascii() and of.isdecimal()
            if not equals or of in found[queues] or (is_number and int(of) not in HOST_IDS):
                raise Unfit(
                    "expected the id of a host, the name of a guest, hosts or guests in 'rights',"
                    f" each once, got {peer[:_SHOWN]!r}"
                )
            found[queues][of] = [word for word in words.split("+") if word not in ("", "none")]
    try:
        return rights_of(found)
    except ValueError as error:
        raise Unfit(str(error)) from None


RIGHTS: Final = ValueKind(
    wanted="rights such as {orders: {hosts: [read, follow], 2: [lead], guests: [read]}},",
    parse=_rights,
    schema={
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": {
                "type": "array",
                "items": {"enum": [each.value for each in Right]},
            },
        },
    },
    takes_list=True,
    takes_mapping=True,
)
