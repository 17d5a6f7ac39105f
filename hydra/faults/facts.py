"""Facts of all components, the basis of conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hydra.faults.quarantine import Quarantined
from hydra.faults.server_links import Dead
from hydra.journal import JournalError
from hydra.model import Fabric, NetworkState, PlaneId, RackId
from hydra.reconfiguration.drift import Drift
from hydra.reconfiguration.readiness import RenumberedPort
from hydra.reservations.reservation import Reservation
from hydra.roles import Alarm


@dataclass(frozen=True, slots=True)
class MissingSwitch:
    name: str
    serves: str
    """The server or rack whose traffic the switch steers."""
    rack: RackId | None
    """The rack whose traffic the switch steers; None: no rack."""


@dataclass(frozen=True, slots=True)
class RefusedSwitch:
    name: str
    """Name of the switch; the address for a missing or unknown datapath id."""
    why: str
    """A sentence, with the remedy."""


@dataclass(frozen=True, slots=True)
class RefusedWorker:
    name: str
    why: str
    """A sentence, with the remedy."""


@dataclass(frozen=True, slots=True)
class TakeoverRisk:
    name: str
    """A member of the store, or a controller."""
    why: str
    """A sentence, with the remedy."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts at a moment, about working and faulty elements."""

    fabric: Fabric
    state: NetworkState
    now_unix_s: float
    reservations: Sequence[Reservation] = ()
    quarantine: Sequence[Quarantined] = ()
    planes_down: Mapping[PlaneId, str] = field(default_factory=dict)
    """Optical switches that cannot be commanded, with the reason."""
    tors_down: Mapping[RackId, str] = field(default_factory=dict)
    switches_away: Sequence[MissingSwitch] = ()
    switches_mute: Sequence[MissingSwitch] = ()
    """Connected switches that do not answer."""
    rules_refused: Mapping[MissingSwitch, str] = field(default_factory=dict)
    """Switches that refuse rules of their circuits, with the refusal in a sentence."""
    meters_refused: Mapping[MissingSwitch, str] = field(default_factory=dict)
    """Switches that refuse their meters, with the refusal."""
    unconfirmed: Collection[str] = ()
    dead_uplinks: Collection[str] = ()
    """Servers whose uplink to the ToR is down, or closed to circuits."""
    alarms: Mapping[str, Sequence[Alarm]] = field(default_factory=dict)
    """Present alarms by optical switch."""
    drift: Sequence[Drift] = ()
    stale: Collection[str] = ()
    """Servers or racks with late counters."""
    patience_s: float = 0.0
    """Tolerated delay of counters in s: a new switch has yet to be read."""
    journal_failure: tuple[float, JournalError] | None = None
    """Time of the first failed write of the journal, in Unix seconds, and the present reason."""
    fitting: Callable[[Sequence[Reservation]], Mapping[str, float]] = lambda _: {}
    """Mbps that would fit now, by id of a failed reservation; absent if no bandwidth fits."""
    workers_refused: Sequence[RefusedWorker] = ()
    switches_refused: Sequence[RefusedSwitch] = ()
    takeover_risks: Sequence[TakeoverRisk] = ()
    renumbered_ports: Sequence[RenumberedPort] = ()
    one_way_uplinks: Dead = field(default_factory=dict)
    """Dead directions of server uplinks with carrier."""
    sending_foreign: Collection[str] = ()
    """Servers with frames recently dropped by the source check."""
