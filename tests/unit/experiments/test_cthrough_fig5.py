"""Fig. 5 of c-Through: what is made of the frames that arrived."""

import struct

import numpy as np
import pytest

from hydra.policy import Transition
from mininet_scenarios.cthrough_fig5 import BIN_S, Fig5Run, Turn, binned_mbps, turns
from mininet_scenarios.experiments import cthrough_fig5, load
from mininet_scenarios.experiments.scaling import Scale
from mininet_scenarios.testbed.capture import Frame

SCALE = Scale(50, 250.0)


def frame(time_s, ip_bytes):
    return Frame(time_s, bytes(14) + b"\x45\x00" + struct.pack("!H", ip_bytes) + bytes(16))


def series(*parts):
    """Bins of ``(seconds, Mbps)``."""
    return np.concatenate([np.full(round(seconds / BIN_S), mbps) for seconds, mbps in parts])


def test_frames_count_with_their_ethernet_header_in_the_bin_of_their_arrival():
    frames = [frame(5.0, 1486), frame(5.001, 486), frame(5.0 + 2.5 * BIN_S, 1486)]
    mbit = 8 / 1e6 / BIN_S
    assert binned_mbps(frames).tolist() == pytest.approx([2000 * mbit, 0, 1500 * mbit])


def test_a_rise_is_timed_from_the_moment_to_the_rate():
    mbps = series((1.0, 2.0), (0.2, 5.0), (1.8, 20.0), (2.0, 2.0))
    up, down = turns(mbps, [(1.0, True), (3.0, False)], 20.0, 2.0)
    assert up.reached_ms == pytest.approx(200, abs=2 * 1e3 * BIN_S)
    assert (down.reached_ms, down.silent_ms) == (0.0, 0.0), "the rate was never less"


def test_a_fall_counts_from_the_silence_on():
    mbps = series((1.0, 20.0), (0.1, 20.0), (0.4, 0.0), (1.5, 2.0))
    (down,) = turns(mbps, [(1.0, False)], 20.0, 2.0)
    assert down.silent_ms == pytest.approx(400, abs=1e3 * BIN_S)
    assert down.reached_ms == pytest.approx(500, abs=3 * 1e3 * BIN_S)


def test_a_rate_that_is_never_reached_is_told():
    (up,) = turns(series((2.0, 5.0)), [(0.5, True)], 20.0, 2.0)
    assert up.reached_ms is None


def fig5_run(transition, reached_ms=80.0, dark_frames=0):
    return Fig5Run(
        transition=transition.value,
        mbps=tuple(series((1.0, 2.0), (2.0, 20.0), (2.0, 2.0)).tolist()),
        optical_mbps=20.0,
        electrical_mbps=2.0,
        turns=(Turn(1.0, True, reached_ms, 0.0), Turn(3.0, False, 400.0, 40.0)),
        retransmits=9,
        dark_frames=dark_frames,
    )


def test_the_share_is_of_what_there_was_between_the_changes():
    assert fig5_run(Transition.HITLESS).share == pytest.approx(1.0)


def test_rows_and_plot(tmp_path):
    published = fig5_run(Transition.AS_PUBLISHED, dark_frames=12)
    good = cthrough_fig5.BothWays(published, fig5_run(Transition.HITLESS), SCALE)
    late = fig5_run(Transition.HITLESS, reached_ms=None, dark_frames=1)
    bad = cthrough_fig5.BothWays(published, late, SCALE)
    experiment = load("cthrough-fig5")
    assert [row.figure for row in experiment.conclude([good]).rows if row.met is False] == []
    assert [row.figure for row in experiment.conclude([bad]).rows if row.met is False] == [
        "hydra: until TCP had 90% of the circuit's rate",
        "hydra: frames at dark OCS ports",
    ]
    assert all(path.exists() for path in experiment.draw([good, bad], tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10
