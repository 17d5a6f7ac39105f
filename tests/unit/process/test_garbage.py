"""Long-lived objects are not scanned again, and garbage is still collected."""

import gc
import sys
import threading
import weakref

import pytest

from apps.process import garbage


class Node:
    def __init__(self):
        self.me = self


@pytest.fixture
def spared():
    garbage.exempt_present_objects()
    yield gc.get_freeze_count()
    gc.callbacks.remove(garbage._spare_survivors)
    gc.unfreeze()


def test_what_is_there_at_the_start_is_spared_and_what_piles_up(spared):
    assert spared > 10_000
    assert len(gc.get_objects(generation=2)) < 10_000
    few = [[number] for number in range(1000)]
    gc.collect()
    assert gc.get_freeze_count() <= spared, "not for so few"
    many = [[number] for number in range(100_000)]
    gc.collect()
    assert gc.get_freeze_count() > spared + 0.9 * len(many)
    assert len(gc.get_objects(generation=2)) < 10_000
    assert (len(few), len(many)) == (1000, 100_000)


def test_cycles_are_collected(spared):
    node = weakref.ref(Node())
    gc.collect()
    assert node() is None


def test_without_a_collection_what_is_there_is_spared_garbage_included(spared):
    gc.disable()
    try:
        node = weakref.ref(Node())
        garbage.exempt_present_objects(collect=False)
    finally:
        gc.enable()
    gc.collect()
    assert node() is not None
    assert gc.get_freeze_count() > spared


def test_tuples_that_another_thread_is_making_are_let_alone(spared):
    """The interpreter extends a tuple in place only without other references."""
    over, broken = threading.Event(), []

    def make():
        try:
            while not over.is_set():
                tuple(number for number in range(1000))
        except SystemError as error:
            broken.append(error)

    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(300):
            gc.collect()
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(usual_s)
    assert not broken
