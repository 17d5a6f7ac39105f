"""Names, limits, and what the planner is told to keep."""

from dataclasses import replace

import pytest

from hydra.errors import AdmissionError, HydraError, LifecycleError, UnknownName
from hydra.lifecycle import ReservationState as State
from hydra.model import Circuit, Fabric, Path, PlaneId, PortId, RackId, VlanId
from hydra.reservations import (
    Pin,
    Reservation,
    ReservationBook,
    ReservationRequest,
    explain_refusal,
)


def direct_path(fabric: Fabric, src: int, dst: int, plane: int = 0) -> Path:
    ends = [
        next(port.id for port in fabric.ports_of(RackId(rack)) if port.plane == plane)
        for rack in (src, dst)
    ]
    circuit = Circuit(PlaneId(plane), PortId(min(ends)), PortId(max(ends)))
    return Path(RackId(src), RackId(dst), (circuit,))


def request(src="r1", dst="r2", bandwidth_mbps=80.0, duration_s=None) -> ReservationRequest:
    return ReservationRequest(src, dst, bandwidth_mbps, duration_s)


@pytest.mark.parametrize(
    ("src", "dst", "racks"),
    [("r1", "r2", (0, 1)), ("h42", "h11", (3, 0)), ("r3", "h22", (2, 1))],
)
def test_racks_and_servers_both_name_a_rack(fabric, src, dst, racks):
    assert ReservationBook().check(request(src, dst), fabric) == racks


@pytest.mark.parametrize(
    ("refused", "error", "words"),
    [
        (request(dst="r9"), UnknownName, ["'r9'", "did you mean"]),
        (request(src="hh11"), UnknownName, ["'hh11'", "'h11'"]),
        (request("h11", "h12"), AdmissionError, ["h11 and h12", "rack r1", "no circuit"]),
        (request("r1", "r1"), AdmissionError, ["rack r1"]),
        (request(bandwidth_mbps=float("nan")), AdmissionError, ["bandwidth_mbps", "nan"]),
        (request(bandwidth_mbps=float("inf")), AdmissionError, ["bandwidth_mbps", "inf"]),
        (request(bandwidth_mbps=0.0), AdmissionError, ["bandwidth_mbps", "above 0"]),
        (request(bandwidth_mbps=-1.0), AdmissionError, ["bandwidth_mbps", "-1"]),
        (request(duration_s=0.0), AdmissionError, ["duration_s", "above 0"]),
        (request(duration_s=float("nan")), AdmissionError, ["duration_s", "nan"]),
        (
            request(bandwidth_mbps=100.5),
            AdmissionError,
            ["100.5 Mb/s between r1 and r2", "at most 100 Mb/s"],
        ),
    ],
)
def test_a_refusal_names_the_thing_and_the_limit(fabric, refused, error, words):
    book = ReservationBook()
    with pytest.raises(error) as caught:
        book.add("a", refused, fabric, now=0.0)
    for word in words:
        assert word in str(caught.value)
    assert len(book) == 0


def test_no_path_ends_at_a_spine(fabric):
    spine = replace(fabric.racks[3], servers=(), prefixes=(), spine=True)
    with_spine = replace(fabric, racks=(*fabric.racks[:3], spine))
    with pytest.raises(AdmissionError, match="r4 is a spine"):
        ReservationBook().check(request("r1", "r4"), with_spine)
    assert ReservationBook().check(request("r1", "r2"), with_spine) == (0, 1)


def test_the_whole_circuit_can_be_reserved_and_no_more(fabric):
    book = ReservationBook()
    for number in range(10):
        book.add(f"a{number}", request(bandwidth_mbps=10.0), fabric, now=0.0)
    with pytest.raises(AdmissionError, match=r"100 Mb/s are reserved already; ask for at most 0 "):
        book.check(request("r2", "r1", 1.0), fabric)
    book.transition("a3", State.FAILED)
    assert book.check(request("r2", "r1", 10.0), fabric) == (1, 0)


def test_a_server_can_not_promise_more_than_its_uplink(fabric):
    slow = replace(fabric, server_rate_mbps=50.0)
    book = ReservationBook()
    assert book.check(request("r1", "r2", 80.0), slow) == (0, 1)
    book.add("a", request("h11", "r2", 30.0), slow, now=0.0)
    with pytest.raises(AdmissionError, match=r"server h11: its uplink carries 50 .* at most 20 "):
        book.check(request("r3", "h11", 30.0), slow)
    assert book.check(request("r3", "h12", 50.0), slow) == (2, 0)


def test_a_rack_without_optical_ports_takes_no_reservation(fabric):
    dark = replace(fabric, ports=tuple(port for port in fabric.ports if port.rack != 1))
    with pytest.raises(AdmissionError, match=r"fastest circuit carries 0 Mb/s"):
        ReservationBook().check(request(), dark)


def test_the_end_counts_from_the_request(fabric):
    book = ReservationBook()
    book.add("short", request(bandwidth_mbps=1.0, duration_s=5.0), fabric, now=100.0)
    book.add("open", request(bandwidth_mbps=1.0), fabric, now=100.0)
    assert book.get("short").expires_unix_s == 105.0
    assert book.expired(104.9) == ()
    assert book.expired(105.0) == ("short",)
    book.transition("short", State.EXPIRED, "its time is over")
    assert book.expired(105.0) == ()
    assert [r.id for r in book.active()] == ["open"]


def test_a_forbidden_step_changes_nothing(fabric):
    book = ReservationBook()
    book.add("a", request(), fabric, now=0.0)
    with pytest.raises(LifecycleError, match=r"reservation a: activating can't become released"):
        book.transition("a", State.RELEASED, path=direct_path(fabric, 0, 1))
    assert book.get("a").state is State.ACTIVATING
    assert book.get("a").path is None
    with pytest.raises(UnknownName, match="'b'"):
        book.transition("b", State.ACTIVE)


def test_an_id_is_used_once(fabric):
    book = ReservationBook()
    book.add("a", request(bandwidth_mbps=1.0), fabric, now=0.0)
    with pytest.raises(LifecycleError, match="'a'"):
        book.add("a", request(bandwidth_mbps=2.0), fabric, now=1.0)
    assert book.get("a").bandwidth_mbps == 1.0


def test_reservations_of_a_rack_pair_share_one_path_and_add_up(fabric):
    book = ReservationBook()
    book.add("a", request("r1", "r2", 30.0), fabric, now=0.0)
    book.add("b", request("h21", "h12", 20.0), fabric, now=0.0)
    book.add("c", request("r4", "r3", 5.0), fabric, now=0.0)
    first, second = direct_path(fabric, 0, 1, plane=0), direct_path(fabric, 0, 1, plane=1)
    book.transition("a", State.ACTIVE, path=first, vlan=VlanId(100))
    assert book.pinned() == (
        Pin(RackId(0), RackId(1), first, 50.0, ("a", "b")),
        Pin(RackId(2), RackId(3), None, 5.0, ("c",)),
    )
    book.transition("b", State.ACTIVE, path=second, vlan=VlanId(101))
    assert (book.get("a").path, book.get("a").vlan) == (second, 101)
    assert [r.id for r in book.place(first, VlanId(102))] == ["a", "b"]
    book.transition("a", State.RELEASING)
    assert book.pinned()[0] == Pin(RackId(0), RackId(1), first, 20.0, ("b",))
    assert book.get("a").path == first, "a reservation that is over remembers its path"


def test_a_path_between_other_racks_is_a_programming_error(fabric):
    book = ReservationBook()
    book.add("a", request(), fabric, now=0.0)
    with pytest.raises(ValueError, match="path"):
        book.transition("a", State.ACTIVE, path=direct_path(fabric, 0, 2), vlan=VlanId(100))
    assert book.get("a").state is State.ACTIVATING


def test_pruning_forgets_the_oldest_that_are_over(fabric):
    book = ReservationBook()
    for number in range(5):
        book.add(f"a{number}", request(bandwidth_mbps=1.0), fabric, now=float(number))
    for over in ("a0", "a1", "a3"):
        book.transition(over, State.FAILED)
    assert book.prune(keep=1) == ("a0", "a1")
    assert [r.id for r in book] == ["a2", "a3", "a4"]
    assert "a0" not in book


def test_a_refusal_says_who_holds_the_ports(fabric):
    book = ReservationBook()
    book.add("a", request("r1", "r3", 60.0), fabric, now=0.0)
    path = direct_path(fabric, 0, 2, plane=1)
    book.transition("a", State.ACTIVE, path=path, vlan=VlanId(100))
    text = explain_refusal(fabric, RackId(0), RackId(1), 70.0, book.pinned())
    assert text == (
        "no path with 70 Mb/s to spare between r1 and r2: at r1 hyt-r1-p1 (plane p1) is free, "
        "hyt-r1-p2 (plane p2) is held by a (r1-r3, 60 of 100 Mb/s); at r2 hyt-r2-p1 (plane p1) "
        "is free, hyt-r2-p2 (plane p2) is free"
    )


def test_a_relay_rack_shows_who_passes_through(fabric):
    first, second = direct_path(fabric, 0, 1), direct_path(fabric, 1, 2, plane=1)
    pin = Pin(
        RackId(0),
        RackId(2),
        Path(RackId(0), RackId(2), first.circuits + second.circuits),
        9.0,
        ("a",),
    )
    text = explain_refusal(fabric, RackId(1), RackId(3), 95.0, [pin])
    assert text.count("is held by a (r1-r3, 9 of 100 Mb/s)") == 2
    assert "at r4 hyt-r4-p1 (plane p1) is free" in text


# --- the journal's records ------------------------------------------------------------------


def placed(fabric: Fabric) -> ReservationBook:
    book = ReservationBook()
    book.add("a", request("h11", "r2", 30.0, 60.0), fabric, now=0.0)
    book.transition("a", State.ACTIVE, "up", direct_path(fabric, 0, 1), VlanId(100))
    return book


def test_records_restore_the_book(fabric):
    book = placed(fabric)
    assert list(ReservationBook.from_records(book.to_records(), fabric)) == list(book)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record.pop("state"),
        lambda record: record.update(state="asleep"),
        lambda record: record.update(colour="red"),
        lambda record: record.update(path={"src": 0}),
        lambda record: record.update(path={"src": 0, "dst": 1, "circuits": [[0, 3, 3]]}),
    ],
)
def test_a_record_that_we_did_not_write_is_refused(fabric, spoil):
    record = placed(fabric).get("a").to_record()
    spoil(record)
    with pytest.raises(HydraError, match="not a reservation record"):
        Reservation.from_record(record)


@pytest.mark.parametrize(
    "change",
    [
        {"racks": lambda f: tuple(reversed(f.racks))},
        {"racks": lambda f: f.racks[1:]},
        {"ports": lambda f: tuple(reversed(f.ports))},
        {"ports": lambda f: ()},
    ],
)
def test_records_of_another_fabric_are_refused(fabric, change):
    records = placed(fabric).to_records()
    renumbered = {}
    for name, new in change.items():
        renumbered[name] = tuple(replace(x, id=n) for n, x in enumerate(new(fabric)))
    racks = renumbered.get("racks")
    if racks:
        renumbered["racks"] = tuple(
            replace(r, servers=tuple(replace(s, rack=r.id) for s in r.servers)) for r in racks
        )
    with pytest.raises(HydraError, match=r"another (fabric|wiring)"):
        ReservationBook.from_records(records, replace(fabric, **renumbered))
