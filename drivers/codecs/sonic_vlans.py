"""SONiC's tables of VLANs and their members (modules ``sonic-vlan``, ``sonic-port``).

A VLAN is a row ``Vlan100``; a port in the VLAN is a row ``Vlan100|Ethernet0`` of the members,
tagged or untagged. Sources are SONiC's configuration manual (sonic-buildimage,
``Configuration.md``) and its YANG modules; vlanmgrd and portsyncd fill the state database's tables.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from drivers.codecs.sonic_ocs import Fields, Table
from drivers.codecs.yang_json import YangJsonError, shown

VLANS: Final = Table("CONFIG_DB", "VLAN", "sonic-vlan", "VLAN_LIST", "name")
MEMBERS: Final = Table("CONFIG_DB", "VLAN_MEMBER", "sonic-vlan", "VLAN_MEMBER_LIST", "name")
MEMBER_STATES: Final = Table("STATE_DB", "VLAN_MEMBER_TABLE", "sonic-vlan", "", "name")
PORTS: Final = Table("CONFIG_DB", "PORT", "sonic-port", "PORT_LIST", "name")
PORT_STATES: Final = Table("STATE_DB", "PORT_TABLE", "sonic-port", "", "name")

_MEMBER: Final = re.compile(r"Vlan([1-9][0-9]{0,3})\|([A-Za-z0-9_.:/-]{1,64})")
_LAST_VLAN: Final = 4094


class Member(NamedTuple):
    """A port in a VLAN."""

    vlan: int
    port: str


def vlan_key(vlan: int) -> str:
    return f"Vlan{vlan}"


def vlan_fields(vlan: int) -> Fields:
    return {"vlanid": str(vlan)}


def member_key(member: Member) -> str:
    return f"{vlan_key(member.vlan)}|{member.port}"


def member_fields(*, untagged: bool) -> Fields:
    return {"tagging_mode": "untagged" if untagged else "tagged"}


def parse_member(key: str) -> Member:
    """``Vlan100|Ethernet0``."""
    match = _MEMBER.fullmatch(key)
    if match is None or int(match[1]) > _LAST_VLAN:
        raise YangJsonError(f"not a port in a VLAN such as Vlan100|Ethernet0: {shown(key)}")
    return Member(int(match[1]), match[2])


def is_untagged(key: str, fields: Fields) -> bool:
    mode = fields.get("tagging_mode")
    if mode not in ("tagged", "untagged", "priority_tagged"):
        raise YangJsonError(f"{key} has the tagging_mode {shown(str(mode))}")
    return mode == "untagged"


def port_number(name: str) -> tuple[str, int]:
    """Sort key of ports: ``Ethernet8`` comes before ``Ethernet12``."""
    digits = re.search(r"[0-9]{0,9}$", name)
    number = digits[0] if digits else ""
    return name.removesuffix(number), int(number or 0)
