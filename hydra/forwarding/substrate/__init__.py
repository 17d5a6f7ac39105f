"""The substrate: rules and port VLANs that implement a plan.

The rest of the core works on pairs, paths and VLANs. Only this package knows the attachment of
servers, and the switches that distinguish circuits. :func:`substrate_of` selects the substrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hydra.forwarding.substrate.base import PortNames, Steering, Substrate
from hydra.forwarding.substrate.openflow import SingleHomedOpenFlow
from hydra.forwarding.substrate.vlan import DualHomedVlan, SingleHomedVlan
from hydra.model import Fabric, SubstrateKind

__all__ = [
    "DualHomedVlan",
    "PortNames",
    "SingleHomedOpenFlow",
    "SingleHomedVlan",
    "Steering",
    "Substrate",
    "substrate_of",
]


def substrate_of(fabric: Fabric) -> Substrate:
    return _SUBSTRATES[fabric.substrate](fabric)


_SUBSTRATES: Final[
    Mapping[SubstrateKind, type[DualHomedVlan] | type[SingleHomedVlan] | type[SingleHomedOpenFlow]]
] = {
    SubstrateKind.DUAL_HOMED_VLAN: DualHomedVlan,
    SubstrateKind.SINGLE_HOMED_VLAN: SingleHomedVlan,
    SubstrateKind.SINGLE_HOMED_OPENFLOW: SingleHomedOpenFlow,
}
