"""Light and blocked ports of the emulated OCS."""

import asyncio
import time
from dataclasses import dataclass

import pytest

from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.mirrors import MemoryMirrors
from mininet_scenarios.emulators.ocs import EmulatedOcs, Timing


@dataclass(slots=True)
class SlowLight(MemoryMirrors):
    """Light with a delay, as on kernel interfaces of a busy machine."""

    @property
    def blocking(self) -> bool:
        return True

    def light(self, egress) -> None:
        time.sleep(0.1)  # timed: mirrors that settle slowly
        super(SlowLight, self).light(egress)


def test_aimed_is_with_light():
    async def connect():
        ocs = EmulatedOcs(8, SlowLight(), Timing(switching_s=0.01))
        await ocs.start()
        ocs.connect([(1, 10), (2, 9)])
        while not ocs.aimed(1):
            await asyncio.sleep(0.001)
        lit = ocs._mirrors.lit()
        await ocs.close()
        return lit

    assert asyncio.run(connect()) == {9, 10}


def test_with_a_debounce_it_is_aimed_before():
    async def connect():
        ocs = EmulatedOcs(8, SlowLight(), Timing(switching_s=0.01, debounce_s=0.3))
        await ocs.start()
        ocs.connect([(1, 10), (2, 9)])
        await ocs.settled()
        seen = ocs.aimed(1), ocs._mirrors.lit()
        await ocs.close()
        return seen, ocs._mirrors.lit()

    assert asyncio.run(connect()) == ((True, frozenset()), {9, 10})


def test_somebody_elses_cross_connect_that_was_replaced_is_nobody_elses_to_remove():
    async def replace():
        ocs = EmulatedOcs(8, MemoryMirrors(), Timing(0.0))
        await ocs.start()
        pair, other = ocs.block(1), ocs.block(2)
        ocs.disconnect([pair])
        ocs.connect([(1, 10)])
        ocs.unblock()
        left = dict(ocs.cross_connects)
        await ocs.close()
        return other, left

    assert asyncio.run(replace()) == ((2, 15), {1: 10})


def test_light_that_is_spread_comes_out_at_another_port_in_use_until_the_fault_ends():
    """Never back to its source, even if the two directions of a circuit are made one after the
    other.
    """

    async def spread():
        mirrors, seen = MemoryMirrors(), []
        ocs = EmulatedOcs(8, mirrors, Timing(0.0))
        await ocs.start()
        ocs.connect([(3, 12), (4, 11)])
        await ocs.settled()
        ocs.faults.arm(FaultKind.BROADCAST, None, 0.0)
        for pair in ((1, 10), (2, 9)):
            ocs.connect([pair])
            await ocs.settled()
            seen.append(dict(mirrors.copies))
        await ocs.clear_faults()
        left = dict(mirrors.copies)
        await ocs.close()
        return seen, left, dict(mirrors.aimed)

    seen, left, aimed = asyncio.run(spread())
    assert seen == [{1: 12}, {2: 12}]
    assert left == {}
    assert aimed == {1: 10, 2: 9, 3: 12, 4: 11}


@pytest.mark.parametrize("closed", [1, 10])
def test_a_closed_shutter_at_either_end_cuts_a_standing_light_until_it_opens(closed):
    async def close_and_open():
        mirrors = MemoryMirrors()
        ocs = EmulatedOcs(8, mirrors, Timing(0.0))
        await ocs.start()
        ocs.connect([(1, 10), (2, 9)])
        await ocs.settled()
        seen = []
        for enabled in (False, True):
            ocs.set_enabled([closed], enabled=enabled)
            await ocs.settled()
            seen.append((mirrors.lit(), ocs.power_dbm(10) is None))
        await ocs.close()
        return seen

    assert asyncio.run(close_and_open()) == [({9}, True), ({9, 10}, False)]


def test_what_is_connected_behind_a_dark_input_or_a_closed_shutter_stays_dark():
    async def connect():
        mirrors = MemoryMirrors()
        ocs = EmulatedOcs(8, mirrors, Timing(0.0))
        await ocs.start()
        ocs.set_input_power(1, None)
        ocs.set_enabled([9], enabled=False)
        ocs.connect([(1, 10), (2, 9), (3, 11)])
        await ocs.settled()
        dark = mirrors.lit()
        ocs.set_input_power(1, -3.0)
        await ocs.settled()
        await ocs.close()
        return dark, mirrors.lit()

    assert asyncio.run(connect()) == ({11}, {10, 11})
