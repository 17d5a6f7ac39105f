"""The emulated data plane: Mininet hosts, Open vSwitch bridges, and OCS emulators."""

from mininet_scenarios.testbed.build import Testbed
from mininet_scenarios.testbed.capture import Capture, Frame
from mininet_scenarios.testbed.links import QueueCounters
from mininet_scenarios.testbed.lock import testbed_lock
from mininet_scenarios.testbed.ocs import OcsProcess
from mininet_scenarios.testbed.shell import TestbedError
from mininet_scenarios.testbed.standalone import open_vswitch
from mininet_scenarios.testbed.sweep import clean_up

__all__ = [
    "Capture",
    "Frame",
    "OcsProcess",
    "QueueCounters",
    "Testbed",
    "TestbedError",
    "clean_up",
    "open_vswitch",
    "testbed_lock",
]
