"""The driver of SONiC ToRs, in cases without a server."""

from __future__ import annotations

import pytest

from drivers.codecs import sonic_vlans
from drivers.tor.sonic_vlan import SonicTor
from drivers.transports.gnmi_session import GnmiRefusal
from drivers.transports.tls import TlsOptions
from hydra.errors import OutcomeUnknown, ProtocolError
from hydra.model import Login, VlanId
from hydra.roles import PortVlans
from tests.waiting import PATIENCE_S

TAGGED = {"tagging_mode": "tagged"}
OURS = PortVlans(frozenset({VlanId(100)}))


class Tables:
    """Databases with fixed content."""

    def __init__(self, **tables: dict[str, dict[str, str]]) -> None:
        self.tables = tables
        self.written = False

    def close(self) -> None: ...

    def read(self, table):
        if self.written:
            raise GnmiRefusal("r1", "the switch refuses (RESOURCE_EXHAUSTED): too many calls")
        return self.tables.get(table.name, {})

    def write_tables(self, _changes) -> None:
        self.written = True


def driver(members: dict[str, dict[str, str]]) -> tuple[SonicTor, Tables]:
    databases = Tables(PORT={"Ethernet0": {}, "Ethernet4": {}}, VLAN_MEMBER=members)
    tor = SonicTor(
        "r1", "127.0.0.1:1", Login("a", password_env="P"), TlsOptions(), timeout_s=PATIENCE_S
    )
    tor._databases = databases
    return tor, databases


def test_ports_are_listed_by_their_numbers():
    tor, databases = driver({})
    names = ["Ethernet4", "Ethernet8", "Ethernet12", "Ethernet100", "PortChannel2"]
    databases.tables["PORT"] = {name: {} for name in reversed(names)}
    assert tor.ports() == tuple(names)


@pytest.mark.parametrize(
    "row",
    [
        {"Vlan4095|Ethernet4": TAGGED},
        {"Vlan7|Ethernet4": {}},
        {
            "Vlan7|Ethernet4": {"tagging_mode": "untagged"},
            "Vlan8|Ethernet4": {"tagging_mode": "untagged"},
        },
    ],
)
def test_a_row_that_makes_no_sense_hides_no_other_ports(row, caplog):
    tor, _ = driver({"Vlan100|Ethernet0": TAGGED, **row})
    for _ in range(2):
        assert tor.vlans(["Ethernet0"]) == {"Ethernet0": OURS}
    with pytest.raises(ProtocolError, match="Ethernet4"):
        tor.vlans(["Ethernet0", "Ethernet4"])
    assert len(caplog.messages) == ("Vlan4095|Ethernet4" in row)


def test_rows_of_another_database_are_read_alike(caplog):
    tor, databases = driver({})
    databases.tables["VLAN_MEMBER_TABLE"] = {"Vlan100|Ethernet0": {"state": "ok"}, "x": {}}
    tor._wait_for_state(["Ethernet0"], [sonic_vlans.Member(100, "Ethernet0")])
    assert caplog.messages == [
        "r1: left out of the device's members of VLANs by state: "
        "not a port in a VLAN such as Vlan100|Ethernet0: 'x'"
    ]


def test_a_refusal_to_read_back_leaves_the_outcome_unknown():
    tor, _ = driver({})
    with pytest.raises(OutcomeUnknown, match="written and not confirmed: r1: the switch refuses"):
        tor.set_vlans({"Ethernet0": OURS})
