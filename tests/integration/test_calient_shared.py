"""A Calient switch with unnamed connections of other users."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import pytest

from drivers.registry import optical_switch
from hydra.model import CrossConnect
from tests.conformance.devices import emulated
from tests.conformance.local_devices import PORTS

THEIRS = [CrossConnect(port, PORTS + port) for port in (PORTS - 1, PORTS)]
OURS = CrossConnect(1, PORTS + 2)


@pytest.mark.parametrize("options", [{}, {"bulk": True}], ids=["one by one", "bulk"])
def test_each_of_the_connections_without_a_name_is_taken_down_by_itself(options):
    with emulated("calient-tl1", "--firmware", "shared")() as bench:
        plane = dataclasses.replace(bench.plane, options=options)
        with closing(optical_switch(plane, bench.timeout_s)) as switch:
            assert switch.cross_connects() == set(THEIRS)
            switch.change([], [OURS])
            switch.change([THEIRS[0]], [])
            assert switch.cross_connects() == {OURS, THEIRS[1]}
            switch.change([OURS, THEIRS[1]], THEIRS[:1])
            assert switch.mirrors().lit == {THEIRS[0]}
