"""Fabrics drawn at random are valid: the controller's own parser accepts all of them."""

from __future__ import annotations

import random

import pytest
import yaml

from apps.process.configuration import load_configuration
from mininet_scenarios.chaos import fabrics
from mininet_scenarios.testbed.layout import layout


@pytest.mark.parametrize("substrate", fabrics.SUBSTRATES)
def test_each_can_be_built(substrate, tmp_path):
    path = tmp_path / "fabric.yaml"
    wirings = set()
    for seed in range(30):
        path.write_text(yaml.safe_dump(fabrics.draw(random.Random(seed), substrate)))
        fabric = load_configuration(path).fabric
        assert layout(fabric, "tcp:127.0.0.1:6653", 300.0).bridges
        wirings.add(frozenset((port.rack, port.plane) for port in fabric.ports))
    assert len(wirings) > 10


def test_a_seed_draws_the_same_one_again():
    drawn = [fabrics.draw(random.Random("7 x"), "dual-homed-vlan") for _ in range(2)]
    assert drawn[0] == drawn[1]
