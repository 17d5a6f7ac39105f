"""Jobs in turn, duties when due, answers for other threads; no error ends the conductor."""

import threading
from concurrent.futures import Future

import pytest

from apps.controller import conductor as room
from apps.controller.conductor import Conductor
from apps.process.metrics import Metrics
from hydra.errors import DeviceUnavailable, HydraError
from hydra.reconfiguration.commands import Batch
from hydra.reconfiguration.scheduler import performed
from tests.unit.controller.runners import awaited
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def conductor():
    conductor = Conductor(Metrics())
    conductor.carry_out_by(lambda batch: batch.commands)
    yield conductor
    conductor.stop()


async def answers(*devices):
    """A job that waits for these futures."""
    await performed(Batch("wait", devices))


nothing = awaited(lambda: None)


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
    for _ in range(3):  # new work that the conductor has not seen may exist
        conductor.put_once(room.job)
    go_on.set()
    conductor.ask(nothing)
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
        conductor.ask(awaited(lambda name=name: done.append(name)))
    audit.last_s = float("-inf")
    conductor.ask(
        lambda: conductor.in_part(audit, awaited(lambda: done.append("a part of a duty")))
    )
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
    assert conductor.ask(awaited(lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        conductor.ask(awaited(lambda: 1 // 0))


def test_who_asks_is_told_when_changes_take_too_long(conductor, monkeypatch):
    monkeypatch.setattr(room, "_PATIENCE_S", 0.05)
    with pytest.raises(DeviceUnavailable, match=r"busy with other changes for 0\.05 s: ask again"):
        conductor.ask(awaited(lambda: 7))  # the conductor has not been started


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
    conductor.ask(nothing)
    assert done == ["under way", "first 1", "first 2", "asked 1", "asked 2"]


def test_what_can_not_wait_is_done_while_a_job_waits_for_devices(conductor):
    device, done, helped = Future(), [], threading.Event()

    async def under_way():
        waiting.set()
        await answers(device)
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
    conductor.ask(nothing)
    assert done[0] == "meanwhile"
    assert done[-2:] == ["under way", "first"]


def test_what_was_put_before_the_last_answer_is_done_before_a_job_goes_on(conductor):
    """As a change of a port reported before a switch's answer, on the same connection."""
    device, done = Future(), []

    def news_and_then_the_answer():
        if not device.done():
            conductor.put(lambda: None, first=True, meanwhile=lambda: done.append("news"))
            device.set_result(None)

    async def under_way():
        await answers(device)
        done.append("under way")

    conductor.beside(news_and_then_the_answer, ())
    conductor.start()
    conductor.put(under_way)
    conductor.ask(nothing)
    assert done == ["news", "under way"]


def test_what_can_not_wait_is_left_to_what_comes_first_where_nothing_waits(conductor):
    done, device = [], Future()
    conductor.put(lambda: done.append("first"), first=True)
    conductor.put(lambda: None, first=True, meanwhile=lambda: done.append("meanwhile"))
    conductor.start()
    threading.Timer(0.1, device.set_result, [None]).start()  # timed: the answer is awaited by then
    conductor.ask(lambda: answers(device, device))
    conductor.ask(answers)
    assert done == ["first"]


def test_a_wait_ends_with_the_last_device(conductor):
    devices = [Future() for _ in range(3)]
    conductor.start()
    conductor.put(lambda: answers(*devices))
    for device in devices[1:]:
        device.set_result(None)
        conductor.put(lambda: None, first=True, meanwhile=lambda: None)
    answer = Future()
    conductor.put(lambda: answer.set_result(devices[0].done()))
    devices[0].set_result(None)
    assert answer.result(PATIENCE_S)


def test_what_comes_first_wakes_the_conductor(conductor):
    done = threading.Event()
    conductor.start(lambda _most_s: 60.0)
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
    """If two jobs come first, the second handles it only after the devices of the first."""
    done, device = [], Future()

    def help_meanwhile():
        done.append("meanwhile")
        device.set_result(None)

    async def one():
        await answers(device)
        done.append("one")

    conductor.put(one, first=True)
    conductor.put(lambda: done.append("two"), first=True)
    conductor.put(lambda: None, first=True, meanwhile=help_meanwhile)
    late = threading.Timer(PATIENCE_S, device.cancel)
    late.start()
    conductor.start()
    conductor.ask(nothing)
    late.cancel()
    assert done == ["meanwhile", "one", "two"]


def test_who_was_told_to_ask_again_is_not_obeyed_later(conductor, monkeypatch):
    monkeypatch.setattr(room, "_PATIENCE_S", 0.05)
    conductor.start()
    over, done = threading.Event(), []
    conductor.put(lambda: over.wait(PATIENCE_S))
    with pytest.raises(DeviceUnavailable, match="busy with other changes"):
        conductor.ask(awaited(lambda: done.append("late")))
    over.set()
    monkeypatch.setattr(room, "_PATIENCE_S", PATIENCE_S)
    conductor.ask(awaited(lambda: done.append("next")))
    assert done == ["next"]


def test_who_asks_for_much_is_told_that_it_has_begun(conductor, monkeypatch):
    begun, over = threading.Event(), threading.Event()

    class Asked(Future):
        def result(self, timeout=None):
            assert begun.wait(PATIENCE_S)
            return super().result(timeout)

    monkeypatch.setattr(room, "Future", Asked)
    monkeypatch.setattr(room, "_PATIENCE_S", 0.01)
    conductor.start()
    with pytest.raises(DeviceUnavailable, match="has begun the job"):
        conductor.ask(awaited(lambda: (begun.set(), over.wait(PATIENCE_S))))
    over.set()


def test_changes_begin_beside_a_job_that_waits_the_most_urgent_first(conductor):
    device, others, done, begun = Future(), [Future(), Future()], [], threading.Semaphore(0)
    wanted = {"lost": [], "reserved": [others[0]], "asked for": [others[1]]}

    async def change(name, other):
        begun.release()
        await answers(other)
        done.append(name)

    def source(name):
        return lambda: change(name, wanted[name].pop()) if wanted[name] else None

    async def under_way():
        await answers(device)
        done.append("in turn")

    conductor.beside(lambda: not device.done(), [source(name) for name in wanted])
    conductor.start()
    conductor.put(under_way)
    conductor.put(lambda: done.append("next"))
    for _ in others:
        assert begun.acquire(timeout=PATIENCE_S)
    others[1].set_result(None)
    wait_until(lambda: done == ["asked for"])
    device.set_result(None)
    wait_until(lambda: done == ["asked for", "in turn"])
    others[0].set_result(None)
    conductor.ask(nothing)
    assert done == ["asked for", "in turn", "reserved", "next"]


def test_what_goes_wrong_beside_a_job_is_logged_and_the_job_goes_on(conductor, caplog):
    device, done, wanted = Future(), [], [HydraError("no room there")]

    async def fails(error):
        device.set_result(None)
        raise error

    async def under_way():
        await answers(device)
        done.append("in turn")

    conductor.beside(lambda: True, [lambda: fails(wanted.pop()) if wanted else None])
    conductor.start()
    conductor.ask(under_way)
    assert done == ["in turn"]
    assert "no room there" in caplog.text
