"""Reports of circuits to agents while the controller moves the circuits."""

from tests.unit.controller.test_policy_in_force import EMPTY, FIRST, JOINED, OTHERWISE, Stage


def test_a_server_hears_of_a_circuit_before_it_moves_and_when_it_stands():
    stage = Stage()
    agents = stage.controller.desk.agents
    heard = []
    with agents.following(FIRST.name, lambda: heard.append(agents.circuits(FIRST.name))):
        stage.move(JOINED)
        assert heard == [("r2",)]
        steps = []
        stage.doer.look = lambda batch: steps.append((batch.step, list(heard)))
        stage.move(OTHERWISE)
        assert heard == [("r2",), ()], "r1 has lost its circuit"
        assert dict(steps)["divert"] == [("r2",), ()], "told before it leaves the circuit"
        stage.move(EMPTY)
        assert heard == [("r2",), ()]
