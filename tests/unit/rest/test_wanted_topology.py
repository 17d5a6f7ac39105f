"""Circuits and paths by name: valid requests, and a clear error for each mistake."""

import pytest

from apps.process.configuration import load_configuration
from apps.rest.problems import ApiError
from apps.rest.resources.plans import PlanBody
from apps.rest.resources.schedule import ScheduleBody
from hydra.policy import Policy
from tests.unit.cli import DEMO

FABRIC = load_configuration(DEMO).fabric


def circuits(*entries):
    return [dict(zip(("plane", "a", "b"), one.split(), strict=True)) for one in entries]


def read(*entries, **more):
    paths = more.pop("paths", [])
    body = {"topology": {"circuits": circuits(*entries), "paths": paths}, **more}
    return PlanBody.model_validate(body).request(FABRIC)


def names(topology):
    return sorted(map(FABRIC.circuit_name, topology.circuits))


def test_each_circuit_is_a_path_of_its_racks():
    request = read("p1 r1 r2", "p2 r4:hyt-r4-p2 r3")
    assert names(request.topology) == ["r1 =p1= r2", "r3 =p2= r4"]
    assert [(path.src, path.dst) for path in request.topology.paths] == [(0, 1), (2, 3)]
    assert not request.demand.any()


def test_a_path_of_several_hops_runs_over_circuits_in_either_order():
    there = read("p1 r1 r2", "p2 r2 r3", paths=[["r1", "r2", "r3"]]).topology
    back = read("p2 r3 r2", "p1 r2 r1", paths=[["r3", "r2", "r1"]]).topology
    assert there == back
    assert [(path.src, path.dst, path.hops) for path in there.paths] == [
        (0, 1, 1),
        (0, 2, 2),
        (1, 2, 1),
    ]


@pytest.mark.parametrize(
    ("entries", "more", "told"),
    [
        (["p1 r1 r9"], {}, "/topology/circuits/0/b: no rack 'r9' in fabric demo"),
        (["p7 r1 r2"], {}, "/topology/circuits/0/plane: no plane 'p7' in fabric demo"),
        (
            ["p1 r1 r1"],
            {},
            "/topology/circuits/0: r1 and r1 are on the same rack: a circuit joins two racks",
        ),
        (
            ["p1 r1 r2", "p1 r3 r2"],
            {},
            "/topology/circuits/1/b: r2 has only hyt-r2-p1 on p1, taken by /topology/circuits/0",
        ),
        (["p1 r1:x r2"], {}, "/topology/circuits/0/a: r1 has no port x on p1"),
        (
            ["p1 r1 r2"],
            {"paths": [["r1", "r2", "r3"]]},
            "/topology/paths/0: no circuit joins r2 and r3: add one to /topology/circuits",
        ),
        (
            ["p1 r1 r2"],
            {"paths": [["r1", "r2", "r1"]]},
            "/topology/paths/0: r1 - r2 - r1 visits a rack twice",
        ),
        (
            ["p1 r1 r2"],
            {"algorithm": "hydra-bfs"},
            "/algorithm: is not used with a given topology: leave out algorithm",
        ),
    ],
)
def test_each_mistake_is_told_once(entries, more, told):
    with pytest.raises(ApiError) as caught:
        read(*entries, **more)
    assert str(caught.value).startswith(told)
    assert len(caught.value.errors) == 1


SLOT = {"length_s": 1.0, "topology": {"circuits": circuits("p1 r1 r2")}}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, ": a schedule is named or listed"),
        ({"name": "rotornet", "slots": [SLOT]}, ": a schedule is named or listed"),
        ({"slots": [SLOT], "slot_s": 1.0}, "/slot_s: listed slots have lengths of their own"),
        (
            {"slots": [SLOT, {**SLOT, "topology": {"circuits": circuits("p1 r1 r2", "p1 r3 r2")}}]},
            "/slots/1/topology/circuits/1/b: r2 has only hyt-r2-p1 on p1, taken by "
            "/slots/1/topology/circuits/0",
        ),
    ],
)
def test_each_mistake_in_a_schedule_is_told_once(body, told):
    with pytest.raises(ApiError) as caught:
        ScheduleBody.model_validate(body).given(FABRIC, Policy())
    assert str(caught.value).startswith(told)
    assert len(caught.value.errors) == 1


def test_a_listed_schedule_has_topologies_and_lengths():
    body = {"slots": [SLOT, {"length_s": 2.5, "topology": {"circuits": circuits("p2 r3 r4")}}]}
    given = ScheduleBody.model_validate(body).given(FABRIC, Policy())
    assert [(names(slot.topology), slot.length_s) for slot in given.slots] == [
        (["r1 =p1= r2"], 1.0),
        (["r3 =p2= r4"], 2.5),
    ]
    assert (given.for_policy.slots.slot_s, given.for_policy.slots.week_s) == (1.0, 3.5)
