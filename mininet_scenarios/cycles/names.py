"""Names of cycles, and the environment variables that give a controller its cycle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from hydra.errors import HydraError
from hydra.policy import Transition
from hydra.reconfiguration.substeps import OWN_CYCLE, Cycle
from mininet_scenarios.cycles.orders import AsPublished, Padded, Prototype, Undiverted

CYCLE_VARIABLE: Final = "HYDRA_EXPERIMENT_CYCLE"
RULES_VARIABLE: Final = "HYDRA_EXPERIMENT_RULES"


class CycleName(StrEnum):
    """The order of substeps in which a controller changes the topology."""

    HITLESS = Transition.HITLESS.value
    DIVERT_FIRST = Transition.DIVERT_FIRST.value
    AS_PUBLISHED = "as-published"
    """Divert, move, activate, as in the papers' prototypes: without drain and gate."""
    UNDIVERTED = "undiverted"
    """Mirrors move under the traffic, as Abu-Tair et al. move their links."""
    PROTOTYPE = "prototype"
    """As published, as slowly as HydRA's prototype."""

    @property
    def own(self) -> bool:
        """True if ``policy.transition`` alone selects the cycle."""
        return self in {CycleName.HITLESS, CycleName.DIVERT_FIRST}

    @property
    def policy(self) -> dict[str, Any]:
        """Policy for the cycle.

        Prototypes of papers neither probe circuits in use nor leave failed ports out.
        """
        if self.own:
            return {"transition": self.value}
        divert_first = Transition.DIVERT_FIRST.value
        return {"transition": divert_first, "probe_interval_s": 0, "quarantine_s": 0.001}


_CYCLES: Final[Mapping[CycleName, Cycle]] = {
    CycleName.AS_PUBLISHED: AsPublished(),
    CycleName.UNDIVERTED: Undiverted(),
    CycleName.PROTOTYPE: Prototype(),
}


def cycle_of(name: CycleName, rules: int = 0) -> Cycle:
    """The cycle with the given name. With ``rules``, each push is filled up to ``rules`` rules."""
    cycle = _CYCLES.get(name, OWN_CYCLE)
    return Padded(cycle=cycle, rules=rules) if rules else cycle


def learns_of_ports(cycle: Cycle) -> bool:
    """True if the controller learns which optical ports are down, as no published prototype did."""
    return not isinstance(cycle.cycle if isinstance(cycle, Padded) else cycle, AsPublished)


def environment_for(name: CycleName, rules: int = 0) -> dict[str, str]:
    """Environment variables for a controller with this cycle."""
    return {CYCLE_VARIABLE: name.value, RULES_VARIABLE: str(rules)}


def cycle_in_environment() -> Cycle:
    """The cycle named by the environment. Raises HydraError for an unknown name."""
    name, rules = os.environ.get(CYCLE_VARIABLE, ""), os.environ.get(RULES_VARIABLE, "")
    try:
        return cycle_of(CycleName(name), int(rules))
    except ValueError:
        raise HydraError(
            f"{CYCLE_VARIABLE}={name!r}, {RULES_VARIABLE}={rules!r}: give a cycle, which is one of "
            f"{', '.join(CycleName)}, and a number of rules"
        ) from None
