"""The substrate: which rules and which port VLANs turn a plan into a network.

The rest of the core speaks of pairs, paths and VLANs; how servers are attached, and who tells
circuits apart, is known here only. :func:`substrate_of` is asked wherever it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hydra.model import Fabric, SubstrateKind
from hydra.substrate.openflow import SingleHomedOpenFlow
from hydra.substrate.role import PortNames, Steering, Substrate
from hydra.substrate.vlan import DualHomedVlan, SingleHomedVlan

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
