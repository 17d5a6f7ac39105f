"""Changes of a file that take effect at once, and changes that wait for the next start."""

from dataclasses import asdict
from enum import Enum

import pytest
import yaml

from apps.process.configuration import load_configuration
from hydra.config.reload import Change, amended, reload
from hydra.errors import ConfigError, HydraError
from hydra.policy import DrainPolicy, Mode, Policy, Transition

from .conftest import CONFIGS

DEMO = CONFIGS / "demo.yaml"


def changed(tmp_path, change):
    document = yaml.safe_load(DEMO.read_text())
    change(document)
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_configuration(path)


APPLIED = {
    "mode",
    "sharing",
    "spill",
    "demand",
    "epoch_s",
    "prediction",
    "season_s",
    "gain_horizon_s",
    "gain_factor",
    "minimum_gain_mbps",
    "minimum_circuit_life_s",
    "vlan_rest_s",
    "audit_interval_s",
    "on_drift",
    "on_silent_vswitch",
    "quarantine_s",
    "divert_share",
    "beyond_room",
    "beyond_hours",
    "replan_share",
    "drain",
    "agents",
    "slots",
    "transition",
    "source_check",
}
"""Keys documented as changed by a reload; all other keys wait."""
KEYS = [
    (name, inner)
    for name, value in asdict(Policy()).items()
    for inner in (value if isinstance(value, dict) else [None])
]


def another(value):
    """Another valid value."""
    if isinstance(value, Enum):
        return next(one.value for one in type(value) if one is not value)
    if value == "auto":
        return 2
    if isinstance(value, str):
        return "01:00-05:00" if ":" in value else "hydra-bfs"
    return value + 1 if isinstance(value, int) else value / 2 or 0.5


@pytest.mark.parametrize(("key", "inner"), KEYS)
def test_each_key_is_applied_or_named_as_waiting(key, inner, tmp_path):
    path = tmp_path / "fabric.yaml"
    document = yaml.safe_load(DEMO.read_text())
    document["policy"] = {}
    path.write_text(yaml.safe_dump(document))
    running = load_configuration(path)
    before = getattr(running.policy, key)
    before = getattr(before, inner) if inner else before
    wanted = another(before)
    document["policy"] = {key: {inner: wanted} if inner else wanted}
    path.write_text(yaml.safe_dump(document))
    file = load_configuration(path)

    policy, done = reload(running, running.policy, file)
    word = str(before.value if isinstance(before, Enum) else before)
    change = Change(".".join(filter(None, ("policy", key, inner))), word, str(wanted))
    assert change.before != change.after
    if key in APPLIED:
        assert (done.applied, done.waiting) == ((change,), ())
        assert policy == file.policy != running.policy
    else:
        assert (done.applied, done.waiting) == ((), (change,))
        assert policy == running.policy != file.policy
    if key in APPLIED - {"transition", "source_check"}:
        value = {inner: wanted} if inner else getattr(file.policy, key)
        assert amended(running.policy, {key: value}) == (file.policy, (change,))
    else:
        with pytest.raises(HydraError, match=rf"policy\.{key} can't be changed without"):
            amended(running.policy, {key: wanted})


def test_nothing_changes_for_the_same_file():
    running = load_configuration(DEMO)
    policy, done = reload(running, running.policy, load_configuration(DEMO))
    assert policy == running.policy
    assert (done.applied, done.waiting) == ((), ())


def test_what_is_decided_later_changes_at_once(tmp_path):
    running = load_configuration(DEMO)

    def change(document):
        document["policy"].update(mode="periodic", epoch_s=7.5, drain={"reads": 5})

    policy, done = reload(running, running.policy, changed(tmp_path, change))
    assert (policy.mode, policy.epoch_s) == (Mode.PERIODIC, 7.5)
    assert policy.drain.reads == 5
    assert done.waiting == ()
    assert Change("policy.mode", running.policy.mode.value, "periodic") in done.applied
    assert Change("policy.drain.reads", str(running.policy.drain.reads), "5") in done.applied


def test_the_transition_changes_at_once_but_by_the_file_alone(tmp_path):
    running = load_configuration(DEMO)
    divert_first = {"transition": Transition.DIVERT_FIRST.value}
    file = changed(tmp_path, lambda document: document["policy"].update(divert_first))
    policy, done = reload(running, running.policy, file)
    assert policy.transition is Transition.DIVERT_FIRST
    assert done.waiting == ()
    with pytest.raises(HydraError, match=r"policy\.transition can't be changed without"):
        amended(running.policy, {"transition": Transition.DIVERT_FIRST})


@pytest.mark.parametrize(
    ("planes", "policy", "words"),
    [
        ({"switching_ms": 5000}, {"sharing": "slotted"}, "leaves no day"),
    ],
)
def test_a_policy_that_the_fabric_of_the_file_alone_can_have_is_refused(
    planes, policy, words, tmp_path
):
    running = changed(tmp_path, lambda document: rebuilt(document, planes, {}))
    file = changed(tmp_path, lambda document: rebuilt(document, {}, policy))
    with pytest.raises(ConfigError, match=rf"{words}.* \(in the running fabric"):
        reload(running, running.policy, file)


def rebuilt(document, planes, policy):
    """The configuration with these keys of all planes, and of the policy."""
    document["policy"].update({"mode": "periodic", "slots": {"slot_s": 2.0}}, **policy)
    for plane in document["planes"]:
        plane.update(planes)


def test_what_was_told_to_devices_and_planner_waits(tmp_path):
    running = load_configuration(DEMO)

    def change(document):
        document["policy"].update(max_hops=2, timeouts={"ocs_s": 9.0})
        document["controller"] = {**document.get("controller", {}), "rest": "127.0.0.1:8181"}
        document["planes"][0]["switching_ms"] = 99.0
        document["policy"]["epoch_s"] = 3.25

    policy, done = reload(running, running.policy, changed(tmp_path, change))
    assert policy.max_hops == running.policy.max_hops
    assert policy.timeouts == running.policy.timeouts
    assert [one.key for one in done.applied] == ["policy.epoch_s"]
    assert {one.key for one in done.waiting} >= {
        "policy.max_hops",
        "policy.timeouts.ocs_s",
        "controller.rest_port",
        "fabric.planes",
    }


def test_a_second_reload_starts_from_what_is_in_force(tmp_path):
    running = load_configuration(DEMO)
    file = changed(tmp_path, lambda document: document["policy"].update(epoch_s=7.5))
    policy, _ = reload(running, running.policy, file)
    again, done = reload(running, policy, file)
    assert again == policy
    assert done.applied == ()
    back, done = reload(running, policy, running)
    assert back == running.policy
    assert [one.key for one in done.applied] == ["policy.epoch_s"]
    assert isinstance(back.drain, DrainPolicy)
