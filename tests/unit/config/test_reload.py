"""What a changed file changes at once, and what waits for the next start."""

from dataclasses import fields

import pytest
import yaml

from apps.process.configuration import load_configuration
from hydra.config.reload import AT_ONCE, Change, amended, reload
from hydra.errors import HydraError
from hydra.policy import DrainPolicy, Mode, Policy, Transition

from .conftest import CONFIGS

DEMO = CONFIGS / "demo.yaml"


def changed(tmp_path, change):
    document = yaml.safe_load(DEMO.read_text())
    change(document)
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_configuration(path)


def test_what_can_be_applied_is_part_of_the_policy():
    assert {field.name for field in fields(Policy)} >= AT_ONCE


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
    """Only the file's checks hold the published one to emulated planes."""
    running = load_configuration(DEMO)
    published = {"transition": Transition.AS_PUBLISHED.value}
    file = changed(tmp_path, lambda document: document["policy"].update(published))
    policy, done = reload(running, running.policy, file)
    assert policy.transition is Transition.AS_PUBLISHED
    assert done.waiting == ()
    with pytest.raises(HydraError, match=r"policy\.transition can't be changed without"):
        amended(running.policy, {"transition": Transition.AS_PUBLISHED})


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
