"""Attachment of servers and ToRs: configuration keys of each substrate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from hydra.config.expand import check_vlan
from hydra.config.patterns import suggest
from hydra.config.problems import ProblemLog
from hydra.config.schema import Document, RackEntry, VSwitchEntry
from hydra.config.source import Path
from hydra.model import SubstrateKind, VlanId
from hydra.policy import OnSilence


def check_substrate(document: Document, broken: frozenset[str], log: ProblemLog) -> None:
    known = [kind.value for kind in SubstrateKind]
    check_known("substrate", document.substrate, known, ("substrate",), log)
    if document.substrate in known and "racks" not in broken:
        _check_attachment(document, SubstrateKind(document.substrate), log)
    closes = "policy" not in broken and document.policy.on_silent_vswitch is OnSilence.CLOSE
    if closes and document.substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW.value:
        log.add(
            ("policy", "on_silent_vswitch"),
            "`close` does not belong on substrate {}, which has neither vswitches nor VLANs to "
            "close a port with: leave `on_silent_vswitch` out",
            document.substrate,
        )
    learning = document.substrate != SubstrateKind.SINGLE_HOMED_OPENFLOW.value
    if "circuits" not in broken and document.circuits == "unidirectional" and learning:
        log.add(
            ("circuits",),
            "unidirectional circuits can't be used on learning ToR switches: a ToR learns a "
            "server on the circuit of the arriving frames and would send answers back on this "
            "circuit, which leads elsewhere; write `bidirectional`, or use substrate "
            f"{SubstrateKind.SINGLE_HOMED_OPENFLOW.value}",
        )


_TWO_UPLINKS: Final = ("optical_port", "electrical_port")
_ONE_UPLINK: Final = ("uplink_port",)
_OPENFLOW_TOR: Final = "openflow"


def _check_attachment(document: Document, substrate: SubstrateKind, log: ProblemLog) -> None:
    """Check that racks and servers have the ports required by the substrate."""
    tagging = substrate is not SubstrateKind.SINGLE_HOMED_OPENFLOW
    for index, rack in enumerate(document.racks):
        path: Path = ("racks", index)
        _check_electrical_port(rack, substrate, path, log)
        _check_tor_driver(rack, substrate, path, log)
        has_vlan = rack.tor.native_vlan is not None
        _check_presence(has_vlan, tagging, (*path, "tor", "native_vlan"), substrate, log)
        if rack.tor.protected_ports and tagging:
            log.add(
                (*path, "tor", "protected_ports"),
                "does not belong on substrate {}, where a ToR forwards by VLANs of its ports",
                substrate.value,
            )
        for number, server in enumerate(rack.servers):
            where: Path = (*path, "servers", number, "vswitch")
            _check_presence(server.vswitch is not None, tagging, where, substrate, log)
            if server.vswitch is not None and tagging:
                _check_uplinks(server.vswitch, substrate, where, log)


def _check_presence(
    given: bool, wanted: bool, where: Path, substrate: SubstrateKind, log: ProblemLog
) -> None:
    if wanted and not given:
        log.add(where, "is missing: substrate {} needs the key", substrate.value)
    if given and not wanted:
        log.add(
            where,
            "does not belong on substrate {}, where ToRs have no VLANs on ports, and servers have "
            "no vswitches",
            substrate.value,
        )


def _check_uplinks(
    vswitch: VSwitchEntry, substrate: SubstrateKind, where: Path, log: ProblemLog
) -> None:
    dual = substrate is SubstrateKind.DUAL_HOMED_VLAN
    wanted, needless = (_TWO_UPLINKS, _ONE_UPLINK) if dual else (_ONE_UPLINK, _TWO_UPLINKS)
    for key in wanted:
        if getattr(vswitch, key) is None:
            log.add((*where, key), "is missing: substrate {} needs the key", substrate.value)
    for key in needless:
        if getattr(vswitch, key) is not None:
            log.add(
                (*where, key),
                "does not belong on substrate {}, where a vswitch has {}",
                substrate.value,
                " and ".join(f"`{other}`" for other in wanted),
            )


def _check_tor_driver(
    rack: RackEntry, substrate: SubstrateKind, path: Path, log: ProblemLog
) -> None:
    """Check that the ToR driver uses rules or VLANs, as the substrate requires."""
    by_rules = substrate is SubstrateKind.SINGLE_HOMED_OPENFLOW
    if (rack.tor.driver == _OPENFLOW_TOR) != by_rules:
        log.add(
            (*path, "tor", "driver"),
            "{!r} can't drive the ToRs of substrate {}: {}",
            rack.tor.driver,
            substrate.value,
            f"the driver there is `{_OPENFLOW_TOR}`"
            if by_rules
            else "ports there have VLANs, and OpenFlow does not set VLANs of ports",
        )


def _check_electrical_port(
    rack: RackEntry, substrate: SubstrateKind, path: Path, log: ProblemLog
) -> None:
    where: Path = (*path, "tor", "electrical_port")
    given = rack.tor.electrical_port is not None
    wanted = substrate is not SubstrateKind.DUAL_HOMED_VLAN and rack.kind == "rack"
    if wanted and not given:
        log.add(
            where,
            "is missing: on substrate {} servers reach the electrical network through the ToR",
            substrate.value,
        )
    if given and not wanted:
        log.add(
            where,
            "does not belong here: {}",
            "a spine only joins circuits"
            if rack.kind == "spine"
            else f"on substrate {substrate.value} each server has a separate uplink",
        )


def check_parking(document: Document, log: ProblemLog) -> VlanId:
    """The parking VLAN; 0 without a parking VLAN."""
    where: Path = ("vlans", "parking")
    parking = document.vlans.parking
    if document.substrate in {kind.value for kind in SubstrateKind}:
        substrate = SubstrateKind(document.substrate)
        wanted = substrate is not SubstrateKind.SINGLE_HOMED_OPENFLOW
        _check_presence(parking is not None, wanted, where, substrate, log)
    return VlanId(0) if parking is None else check_vlan(parking, where, log)


def check_known(kind: str, name: str, known: Collection[str], path: Path, log: ProblemLog) -> None:
    if name not in known:
        log.add(path, "unknown {} {!r}; {}", kind, name, suggest(name, sorted(known)))
