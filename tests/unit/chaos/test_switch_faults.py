"""Descriptions of switch faults."""

from __future__ import annotations

import random

import pytest

from mininet_scenarios.chaos import switch_faults
from mininet_scenarios.chaos.switch_faults import PortsRenumbered

PORTS = ("hys-h11", "hyt-1-p1", "hyt-1-p2")


class Draws(random.Random):
    """Random choices with fixed ports; settable: whether two ports swap their numbers."""

    def __init__(self, ports, below):
        super().__init__(0)
        self._ports, self._below = ports, below

    def sample(self, _population, _k):
        return list(self._ports)

    def random(self):
        return self._below

    def randint(self, low, _high):
        return low


@pytest.mark.parametrize(("draw", "dark"), [(0.0, {"hys-h11", "hyt-1-p2"}), (1.0, {"hys-h11"})])
def test_ports_that_swap_their_numbers_may_be_sent_what_is_for_each_other(monkeypatch, draw, dark):
    """A frame for a server left by a port in the dark before the rules had followed (seed 3011)."""
    told = []

    def run(command):
        told.append(command)
        return "\n".join(PORTS) if "list-ports" in command else "7"

    monkeypatch.setattr(switch_faults, "run", run)
    monkeypatch.setattr(PortsRenumbered, "__init__", lambda self: None)
    fault = PortsRenumbered()
    fault.bridge, fault.chance = "hytor-r1", Draws(("hys-h11", "hyt-1-p2"), draw)
    assert fault.darkens() == frozenset()
    fault.strike()
    assert fault.darkens() == dark
    assert sum(one.startswith("ofport_request=") for one in told[-1]) == len(dark)
