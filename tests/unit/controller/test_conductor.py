"""Jobs in turn, duties when due, answers for others; nothing that goes wrong ends it."""

import threading
from concurrent.futures import Future, wait

import pytest

from apps.controller import conductor as room
from apps.controller.conductor import Conductor
from apps.process.metrics import Metrics
from hydra.errors import DeviceUnavailable, HydraError
from tests.waiting import PATIENCE_S


class Clock:
    """Time that passes only while a duty or a job takes some."""

    def __init__(self):
        self.now_s = 100.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(room, "time", clock)
    return clock


@pytest.fixture
def conductor():
    conductor = Conductor(Metrics())
    yield conductor
    conductor.stop()


def turns(conductor, clock, times):
    """The duties that are done at these times."""
    for now_s in times:
        clock.now_s = now_s
        for duty in conductor._duties:
            conductor._do_if_due(duty)


def test_a_duty_comes_once_a_period_and_at_once_if_asked(conductor, clock):
    done = []
    conductor.duty("a", lambda: done.append(("a", clock.now_s)), lambda: 2.0, at_once=True)
    conductor.duty("b", lambda: done.append(("b", clock.now_s)), lambda: 2.0)
    turns(conductor, clock, (100.0, 101.0, 102.0, 103.9, 104.1, 105.0))
    assert done == [("a", 100.0), ("a", 102.0), ("b", 102.0), ("a", 104.1), ("b", 104.1)]


def test_one_that_takes_longer_than_its_period_leaves_time_for_others(conductor, clock):
    done = []

    def slow():
        done.append(clock.now_s)
        clock.now_s += 5.0

    conductor.duty("slow", slow, lambda: 2.0, at_once=True)
    turns(conductor, clock, (100.0,))
    turns(conductor, clock, (105.0, 106.9, 107.0))
    assert done == [100.0, 107.0]


def test_one_that_is_off_begins_a_period_after_it_is_on(conductor, clock):
    done, period = [], [None]
    conductor.duty("a", lambda: done.append(clock.now_s), lambda: period[0])
    turns(conductor, clock, (100.0, 110.0))
    period[0] = 5.0
    turns(conductor, clock, (112.0, 114.9, 115.0))
    assert done == [115.0]


def test_a_part_of_a_duty_is_done_once_a_period_while_a_job_waits(conductor, clock):
    """And the duty itself, which the job held up, as soon as that is over."""
    done, period = [], [10.0]
    duty = conductor.duty("a", lambda: done.append(("all", clock.now_s)), lambda: period[0])

    def wait(*times):
        for now_s in times:
            clock.now_s = now_s
            conductor.in_part(duty, lambda: done.append(("part", clock.now_s)))

    wait(105.0, 110.0, 112.0, 119.9, 121.0)
    turns(conductor, clock, (122.0,))
    wait(123.0)
    period[0] = None
    wait(200.0)
    assert done == [("part", 110.0), ("part", 121.0), ("all", 122.0)]


def test_a_job_that_waits_is_not_put_again(conductor):
    done, begun, go_on = [], threading.Event(), threading.Event()

    class Room:
        def job(self):
            done.append("job")
            begun.set()
            go_on.wait(PATIENCE_S)

    room = Room()
    for _ in range(3):
        conductor.put_once(room.job)
    conductor.start()
    assert begun.wait(PATIENCE_S)
    for _ in range(3):  # there may be something new that it has not seen
        conductor.put_once(room.job)
    go_on.set()
    conductor.ask(lambda: None)
    assert done == ["job", "job"]


def test_one_that_ends_begins_no_duty_and_does_what_is_asked(conductor):
    turn, done = threading.Semaphore(0), []

    def once():
        turn.acquire()
        done.append("duty")
        conductor.end_soon()

    conductor.duty("first", once, lambda: 0.0)
    conductor.duty("second", lambda: done.append("another duty"), lambda: 0.0)
    audit = conductor.duty("audit", lambda: None, lambda: 10.0)
    conductor.start()
    turn.release(5)
    asked = ["job", "job after it"]
    for name in asked:
        conductor.ask(lambda name=name: done.append(name))
    audit.last_s = float("-inf")
    conductor.ask(lambda: conductor.in_part(audit, lambda: done.append("a part of a duty")))
    conductor.stop()
    assert done == ["duty", *asked]


def test_what_goes_wrong_is_logged_and_counted_and_the_next_job_runs(conductor, caplog):
    over = threading.Event()

    def fails():
        raise HydraError("the disk is full")

    def is_wrong():
        raise ZeroDivisionError

    conductor.put(fails)
    conductor.put(is_wrong)
    conductor.put(over.set)
    conductor.start()
    assert over.wait(PATIENCE_S)
    assert conductor.alive
    assert "the disk is full" in caplog.text
    assert "failed unexpectedly" in caplog.text


def test_an_answer_and_an_error_reach_who_asked(conductor):
    conductor.start()
    assert conductor.ask(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        conductor.ask(lambda: 1 // 0)


def test_who_asks_is_told_when_changes_take_too_long(conductor, monkeypatch):
    monkeypatch.setattr(room, "_PATIENCE_S", 0.05)
    with pytest.raises(DeviceUnavailable, match=r"busy with other changes for 0\.05 s: ask again"):
        conductor.ask(lambda: 7)  # it has not been started


def test_what_comes_first_does_not_wait_for_what_others_have_asked(conductor):
    done, busy, go_on = [], threading.Event(), threading.Event()

    def under_way():
        busy.set()
        assert go_on.wait(PATIENCE_S)
        done.append("under way")

    conductor.start()
    conductor.put(under_way)
    assert busy.wait(PATIENCE_S)
    for name in ("asked 1", "asked 2"):
        conductor.put(lambda name=name: done.append(name))
    for name in ("first 1", "first 2"):
        conductor.put(lambda name=name: done.append(name), first=True)
    go_on.set()
    conductor.ask(lambda: None)
    assert done == ["under way", "first 1", "first 2", "asked 1", "asked 2"]


def test_what_can_not_wait_is_done_while_a_job_waits_for_devices(conductor):
    device, done, helped = Future(), [], threading.Event()

    def under_way():
        waiting.set()
        conductor.wait_for([device])
        done.append("under way")

    def help_meanwhile():
        done.append("meanwhile")
        helped.set()

    waiting = threading.Event()
    conductor.start()
    conductor.put(under_way)
    assert waiting.wait(PATIENCE_S)
    conductor.put(lambda: done.append("first"), first=True)
    for _ in range(3):
        conductor.put(lambda: None, first=True, meanwhile=help_meanwhile)
    assert helped.wait(PATIENCE_S)
    device.set_result(None)
    conductor.ask(lambda: None)
    assert done[0] == "meanwhile"
    assert done[-2:] == ["under way", "first"]


def test_what_can_not_wait_does_not_wait_for_devices_of_the_one_before_it(conductor):
    """As a divert that comes with a reservation, which is a change of its own."""
    device, other, done = Future(), Future(), []

    def wait_meanwhile():
        conductor.wait_for([other])
        done.append("reservation")

    def divert():
        done.append("divert")
        other.set_result(None)

    def under_way():
        conductor.put(lambda: None, first=True, meanwhile=wait_meanwhile)
        conductor.put(lambda: None, first=True, meanwhile=divert)
        late.start()
        conductor.wait_for([device])
        done.append("under way")

    late = threading.Timer(5.0, other.set_result, [None])
    conductor.put(under_way)
    conductor.start()
    wait([other], 10)
    late.cancel()
    device.set_result(None)
    conductor.ask(lambda: None)
    assert done == ["divert", "reservation", "under way"]


def test_what_can_not_wait_is_left_to_what_comes_first_where_nothing_waits(conductor):
    done, device = [], Future()
    conductor.put(lambda: done.append("first"), first=True)
    conductor.put(lambda: None, first=True, meanwhile=lambda: done.append("meanwhile"))
    conductor.start()
    threading.Timer(0.1, device.set_result, [None]).start()
    conductor.ask(lambda: conductor.wait_for([device, device]))
    conductor.ask(lambda: conductor.wait_for([]))
    assert done == ["first"]


def test_a_wait_ends_with_the_last_device(conductor):
    devices = [Future() for _ in range(3)]
    conductor.start()
    conductor.put(lambda: conductor.wait_for(devices))
    for device in devices[1:]:
        device.set_result(None)
        conductor.put(lambda: None, first=True, meanwhile=lambda: None)
    answer = Future()
    conductor.put(lambda: answer.set_result(devices[0].done()))
    devices[0].set_result(None)
    assert answer.result(PATIENCE_S)


def test_what_comes_first_wakes_the_conductor(conductor):
    done = threading.Event()
    conductor.nap_s = lambda _most_s: 60.0
    conductor.start()
    conductor.put(done.set, first=True)
    assert done.wait(PATIENCE_S)


def test_what_comes_first_waits_for_one_duty_at_most(conductor):
    done, over = [], threading.Event()

    def look():
        if not over.is_set():
            conductor.put(lambda: done.append("first"), first=True)
            done.append("one duty")

    def audit():
        done.append("the next")
        over.set()

    conductor.duty("a", look, lambda: 3600.0, at_once=True)
    conductor.duty("b", audit, lambda: 3600.0, at_once=True)
    conductor.start()
    assert over.wait(PATIENCE_S)
    assert done == ["one duty", "first", "the next"]


def test_what_can_not_wait_is_not_forgotten_for_what_comes_first(conductor):
    """Where two jobs come first, the second sees to it only after the first one's devices."""
    done, device = [], Future()

    def help_meanwhile():
        done.append("meanwhile")
        device.set_result(None)

    conductor.put(lambda: (conductor.wait_for([device]), done.append("one")), first=True)
    conductor.put(lambda: done.append("two"), first=True)
    conductor.put(lambda: None, first=True, meanwhile=help_meanwhile)
    late = threading.Timer(5.0, device.cancel)
    late.start()
    conductor.start()
    conductor.ask(lambda: None)
    late.cancel()
    assert done == ["meanwhile", "one", "two"]


def test_who_was_told_to_ask_again_is_not_obeyed_later(conductor, monkeypatch):
    monkeypatch.setattr(room, "_PATIENCE_S", 0.05)
    conductor.start()
    over, done = threading.Event(), []
    conductor.put(lambda: over.wait(PATIENCE_S))
    with pytest.raises(DeviceUnavailable, match="busy with other changes"):
        conductor.ask(lambda: done.append("late"))
    over.set()
    monkeypatch.setattr(room, "_PATIENCE_S", 10.0)
    conductor.ask(lambda: done.append("next"))
    assert done == ["next"]


def test_who_asks_for_much_is_told_that_it_has_begun(conductor, monkeypatch):
    monkeypatch.setattr(room, "_PATIENCE_S", 0.2)
    conductor.start()
    over = threading.Event()
    with pytest.raises(DeviceUnavailable, match="has begun it"):
        conductor.ask(lambda: over.wait(PATIENCE_S))
    over.set()


def test_changes_come_in_while_a_job_waits_once_there_is_something_new(conductor):
    """The most urgent first: it is asked first, and only one is made at a time."""
    device, asked, looked = Future(), [], threading.Semaphore(0)

    def come_in(name, made):
        conductor.beside(lambda: asked.append(name) or made)

    def look():
        assert conductor.come_in()
        looked.release()

    for name, made in (("lost", False), ("reserved", True), ("asked for", True)):
        come_in(name, made)
    conductor.start(look_beside=look)
    conductor.put(lambda: conductor.wait_for([device]))
    conductor.put(lambda: None)
    assert looked.acquire(timeout=PATIENCE_S)
    while looked.acquire(blocking=False):
        pass
    asked.clear()
    conductor.wake()
    assert looked.acquire(timeout=PATIENCE_S)
    device.set_result(None)
    conductor.ask(lambda: None)
    assert asked == ["lost", "reserved"]
