"""Queues of a server's interface, by the commands of tc."""

import json

import pytest

from apps.agent.scheduler import OutputScheduler, SchedulingError

PREFIXES = {"r1": ["10.0.1.0/24"], "r2": ["10.0.2.0/24"]}


class Tc:
    """An interface with a root queue, in the format of tc."""

    def __init__(self, queue):
        self.queue = queue
        self.told = []

    def __call__(self, *arguments, stdin=None):
        if "show" in arguments:
            return json.dumps([{"kind": self.queue[0], "handle": self.queue[1]}])
        lines = [" ".join(arguments)] if stdin is None else stdin.splitlines()
        for line in lines:
            if line.startswith("qdisc del"):
                self.queue = "noqueue", "0:"
            elif line.startswith("qdisc replace"):
                if self.queue == ("htb", "5:"):
                    raise SchedulingError("Change operation not supported by specified qdisc.")
                self.queue = "htb", "5:"
        self.told += lines
        return ""


@pytest.fixture
def scheduler_of(monkeypatch):
    def make(tc):
        monkeypatch.setattr(OutputScheduler, "_tc", lambda _self, *a, **kw: tc(*a, **kw))
        return OutputScheduler("eth0", PREFIXES)

    return make


def test_queues_that_an_agent_left_when_it_was_killed_are_made_anew(scheduler_of):
    tc = Tc(("htb", "5:"))
    with scheduler_of(tc) as scheduler:
        scheduler.apply(1000.0, 0.5, ["r1"])
        assert tc.queue == ("htb", "5:")
    assert tc.queue == ("noqueue", "0:")


def test_queues_that_an_agent_left_go_if_nothing_is_to_be_scheduled(scheduler_of):
    tc = Tc(("htb", "5:"))
    scheduler_of(tc).apply(1000.0, 0.0, [])
    assert tc.queue == ("noqueue", "0:")


def test_queues_that_went_with_their_interface_are_not_missed_at_the_end(scheduler_of):
    tc = Tc(("noqueue", "0:"))
    with scheduler_of(tc) as scheduler:
        scheduler.apply(1000.0, 0.5, ["r1"])
        tc.queue = "noqueue", "0:"
        tc.told.clear()
    assert tc.told == []


def test_queues_of_somebody_else_s_are_left_alone(scheduler_of):
    with pytest.raises(SchedulingError, match=r"queues of its own \(htb 7:\)"):
        scheduler_of(Tc(("htb", "7:")))
