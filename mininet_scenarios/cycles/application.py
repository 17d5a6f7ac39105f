"""The production controller, with the cycle named by the environment."""

from __future__ import annotations

from collections.abc import Iterable

from apps.main import HydRA
from apps.openflow.interface import Application, Post
from apps.process.configuration import configuration_path, load_configuration
from hydra.config.checks import is_loopback
from hydra.config.devices import parse_endpoint
from hydra.errors import HydraError
from hydra.model import Plane
from mininet_scenarios.cycles.names import cycle_in_environment, learns_of_ports
from mininet_scenarios.cycles.unaware import UnawareApplication


class ExperimentalHydRA(HydRA):
    """Application for ryu-manager."""

    def compose(self, post: Post) -> Application:
        fabric = load_configuration(configuration_path()).fabric
        refuse_real_switches(fabric.planes)
        self.cycle = cycle_in_environment()
        application = super().compose(post)
        if learns_of_ports(self.cycle):
            return application
        return UnawareApplication(application, {port.tor_port for port in fabric.ports})


def refuse_real_switches(planes: Iterable[Plane]) -> None:
    """Raise HydraError unless every plane can only be a process on this machine."""
    for plane in planes:
        if not _is_emulated(plane.address):
            raise HydraError(
                f"cycles of experiments lose packets, and {plane.name} at {plane.address} may be a "
                "real switch: emulate all planes on this machine"
            )


def _is_emulated(address: str) -> bool:
    endpoint = parse_endpoint(address.removeprefix("tcp:"))
    if endpoint is not None:
        return is_loopback(endpoint[0])
    return address.startswith(("unix:", "/dev/pts/"))
