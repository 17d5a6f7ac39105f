"""Names, limits, and pins for the planner."""

import math
import re
from dataclasses import replace

import pytest

from hydra.errors import AdmissionError, Alternative, LifecycleError, UnknownName, WrongRequest
from hydra.lifecycle import ReservationState as State
from hydra.model import Circuit, Fabric, Path, PlaneId, PortId, RackId, VlanId
from hydra.reservations.admission import moment
from hydra.reservations.book import ReservationBook
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.requests import check
from hydra.reservations.reservation import LATEST_UNIX_S, Pin, ReservationRequest, ServiceClass
from tests.unit.core.fabrics import small_fabric


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
    assert check(fabric, request(src, dst)) == racks


@pytest.mark.parametrize(
    ("refused", "error", "words"),
    [
        (request(dst="r9"), UnknownName, ["'r9'", "did you mean"]),
        (request(src="hh11"), UnknownName, ["'hh11'", "'h11'"]),
        (request("h11", "h12"), WrongRequest, ["h11 and h12", "rack r1", "no circuit"]),
        (request("r1", "r1"), WrongRequest, ["rack r1"]),
        (request(bandwidth_mbps=float("nan")), WrongRequest, ["bandwidth_mbps", "nan"]),
        (request(bandwidth_mbps=float("inf")), WrongRequest, ["bandwidth_mbps", "inf"]),
        (request(bandwidth_mbps=0.0), WrongRequest, ["bandwidth_mbps", "above 0"]),
        (request(bandwidth_mbps=-1.0), WrongRequest, ["bandwidth_mbps", "-1"]),
        (request(duration_s=0.0), WrongRequest, ["duration_s", "above 0"]),
        (request(duration_s=float("nan")), WrongRequest, ["duration_s", "nan"]),
        (
            request(bandwidth_mbps=100.5),
            AdmissionError,
            ["100.5 Mb/s between r1 and r2", "at most 100 Mb/s"],
        ),
    ],
)
def test_a_refusal_names_the_thing_and_the_limit(fabric, refused, error, words):
    book = ReservationBook(fabric)
    with pytest.raises(error) as caught:
        book.add("a", refused, now=0.0)
    for word in words:
        assert word in str(caught.value)
    assert len(book) == 0


def test_nothing_is_promised_on_one_way_circuits(fabric):
    book = ReservationBook(replace(fabric, one_way=True))
    with pytest.raises(AdmissionError, match="holds both directions") as error:
        book.add("a", request(), 0.0)
    assert error.value.alternatives == ()
    with pytest.raises(UnknownName):
        book.add("a", request(dst="r9"), 0.0)
    assert not list(book)


def of_one_family(fabric, version_of):
    """``fabric`` with some servers' addresses reduced to one family: 4 or 6, by name."""

    def server(one):
        version = version_of.get(one.name)
        kept = (two for two in one.addresses if version in (None, two.version))
        return replace(one, addresses=tuple(kept))

    racks = (replace(rack, servers=tuple(map(server, rack.servers))) for rack in fabric.racks)
    return replace(fabric, racks=tuple(racks))


@pytest.mark.parametrize(
    ("version_of", "src", "dst"),
    [
        pytest.param({"h11": 4, "h12": 4, "h21": 6, "h22": 6}, "r1", "r2", id="racks"),
        pytest.param({"h11": 4, "h21": 6}, "h11", "h21", id="servers of racks with both"),
        pytest.param({"h11": 4, "h21": 6, "h22": 6}, "h11", "r2", id="a server and a rack"),
    ],
)
def test_ends_without_a_family_in_common_are_refused(fabric, version_of, src, dst):
    fabric = of_one_family(fabric, version_of)
    words = f"{src} has IPv4 addresses only, {dst} IPv6 addresses only: .* would carry no packets"
    with pytest.raises(WrongRequest, match=words):
        check(fabric, request(src, dst))
    with pytest.raises(WrongRequest, match="would carry no packets"):
        check(fabric, request(dst, src))
    assert check(fabric, request("r3", dst)) == (2, 1), "it has both"


def test_guests_may_have_any_address_of_the_rack(fabric):
    strangers = of_one_family(fabric, {"h11": 4, "h12": 4, "h21": 6, "h22": 6})
    host = replace(strangers.racks[1].servers[0], guests=("02:00:00:00:00:99",))
    rack = replace(strangers.racks[1], servers=(host, *strangers.racks[1].servers[1:]))
    fabric = replace(strangers, racks=(strangers.racks[0], rack, *fabric.racks[2:]))
    assert check(fabric, request("r1", "h21")) == (0, 1)
    with pytest.raises(WrongRequest, match="would carry no packets"):
        check(fabric, request("r1", "h22"))


def test_no_path_ends_at_a_spine(fabric):
    spine = replace(fabric.racks[3], servers=(), prefixes=(), spine=True)
    with_spine = replace(fabric, racks=(*fabric.racks[:3], spine))
    with pytest.raises(WrongRequest, match="r4 is a spine"):
        check(with_spine, request("r1", "r4"))
    assert check(with_spine, request("r1", "r2")) == (0, 1)


def test_the_whole_circuit_can_be_reserved_and_no_more(fabric):
    book = ReservationBook(fabric)
    for number in range(10):
        book.add(f"a{number}", request(bandwidth_mbps=10.0), now=0.0)
    with pytest.raises(AdmissionError, match=r"and 100 Mb/s are reserved already \(by a0, "):
        book.add("b", request("r2", "r1", 1.0), now=0.0)
    book.transition("a3", State.FAILED)
    assert book.add("b", request("r2", "r1", 10.0), now=0.0).booked == book.get("a0").booked


def test_a_server_can_not_promise_more_than_its_uplink(fabric):
    slow = replace(fabric, server_rate_mbps=50.0)
    book = ReservationBook(slow)
    book.add("a", request("h11", "r2", 30.0), now=0.0)
    with pytest.raises(AdmissionError, match=r"server h11: the uplink carries 50 .* at most 20 "):
        book.add("b", request("r3", "h11", 30.0), now=0.0)
    assert book.add("b", request("r3", "h12", 50.0), now=0.0).pair == (0, 2)


def test_a_rack_without_optical_ports_takes_no_reservation(fabric):
    lit = [port for port in fabric.ports if port.rack != 1]
    dark = replace(fabric, ports=tuple(replace(port, id=i) for i, port in enumerate(lit)))
    with pytest.raises(AdmissionError, match=r"fastest circuit carries 0 Mb/s"):
        ReservationBook(dark).add("a", request(), now=0.0)


def test_the_end_counts_from_the_request(fabric):
    book = ReservationBook(fabric)
    book.add("short", request(bandwidth_mbps=1.0, duration_s=5.0), now=100.0)
    book.add("open", request(bandwidth_mbps=1.0), now=100.0)
    assert book.get("short").expires_unix_s == 105.0
    assert book.expired(104.9) == ()
    assert book.expired(105.0) == ("short",)
    book.transition("short", State.EXPIRED, "its time is over")
    assert book.expired(105.0) == ()
    assert [r.id for r in book.active()] == ["open"]


def test_a_forbidden_step_changes_nothing(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(), now=0.0)
    with pytest.raises(
        LifecycleError,
        match=r"reservation a is activating and can't become released: possible next states: ",
    ):
        book.transition("a", State.RELEASED)
    assert book.get("a").state is State.ACTIVATING
    assert book.get("a").path is None
    with pytest.raises(UnknownName, match="'b'"):
        book.transition("b", State.ACTIVE)


def test_an_id_is_used_once(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(bandwidth_mbps=1.0), now=0.0)
    with pytest.raises(LifecycleError, match="'a'"):
        book.add("a", request(bandwidth_mbps=2.0), now=1.0)
    assert book.get("a").bandwidth_mbps == 1.0


def test_reservations_of_a_rack_pair_share_one_path_and_add_up(fabric):
    book = ReservationBook(fabric)
    book.add("a", request("r1", "r2", 30.0), now=0.0)
    book.add("b", request("h21", "h12", 20.0), now=0.0)
    book.add("c", request("r4", "r3", 5.0), now=0.0)
    first, second = direct_path(fabric, 0, 1, plane=0), direct_path(fabric, 0, 1, plane=1)
    book.transition("a", State.ACTIVE)
    assert book.pinned() == (
        Pin(RackId(0), RackId(1), first, 50.0, ("a", "b")),
        Pin(RackId(2), RackId(3), direct_path(fabric, 2, 3), 5.0, ("c",)),
    )
    book.transition("b", State.ACTIVE)
    assert book.place(second, VlanId(101)) == (), "nobody was promised that one"
    assert [r.id for r in book.place(first, VlanId(102))] == ["a", "b"]
    assert (book.get("a").path, book.get("a").vlan) == (first, 102)
    book.transition("a", State.RELEASING)
    assert book.pinned()[0] == Pin(RackId(0), RackId(1), first, 20.0, ("b",))
    assert book.get("a").path == first, "a reservation that is over remembers its path"


def test_server_pairs_get_circuits_of_their_own_where_one_has_no_room_for_both(fabric):
    book = ReservationBook(fabric)
    one = book.add("a", request("h11", "h21", 90.0), now=0.0)
    other = book.add("b", request("h12", "h22", 90.0), now=0.0)
    first, second = direct_path(fabric, 0, 1, plane=0), direct_path(fabric, 0, 1, plane=1)
    assert (one.booked, other.booked) == (first, second)
    assert book.pinned() == (
        Pin(RackId(0), RackId(1), first, 90.0, ("a",)),
        Pin(RackId(0), RackId(1), second, 90.0, ("b",)),
    )
    assert [r.id for r in book.place(second, VlanId(101))] == ["b"]
    assert (book.get("a").path, book.get("b").path) == (None, second)
    assert [r.id for r in book.on(second.circuits[0])] == ["b"]
    assert book.add("c", request("h11", "h22", 5.0), now=0.0).booked == first, "a path there is"
    assert book.add("d", request("h22", "h12", 5.0), now=0.0).booked == second, "with b's frames"
    with pytest.raises(AdmissionError, match="r1 and r2 has several paths at the time"):
        book.add("f", request("r1", "r2", 1.0), now=0.0)


def test_a_refusal_on_a_full_path_names_the_planes_that_are_idle(fabric):
    book = ReservationBook(fabric)
    book.add("a", request("r1", "r2", 90.0), now=0.0)
    with pytest.raises(AdmissionError, match=r"a further circuit could be on p2, for .* other"):
        book.add("b", request("r1", "r2", 90.0), now=0.0)
    book.add("c", request("r1", "r3", 90.0), now=0.0)
    with pytest.raises(AdmissionError) as refused:
        book.add("b", request("r1", "r2", 90.0), now=0.0)
    assert "further circuit" not in str(refused.value)


def test_as_many_paths_as_a_pair_may_have(fabric):
    book, limits = ReservationBook(fabric), AdmissionLimits(paths_per_pair=1)
    book.add("a", request("h11", "h21", 90.0), 0.0, limits)
    with pytest.raises(AdmissionError, match=r"may have 1 path at a time \(policy.paths_per"):
        book.add("b", request("h12", "h22", 90.0), 0.0, limits)
    later = replace(request("h12", "h22", 90.0), start_unix_s=5.0)
    with pytest.raises(AdmissionError, match=r"may have 1 path"):
        book.add("b", later, 0.0, limits)


def test_who_is_not_at_a_port_that_fails_stays_on_its_path(fabric):
    book = ReservationBook(fabric)
    one = book.add("a", request("h11", "h21", 90.0), now=0.0)
    other = book.add("b", request("h12", "h22", 90.0), now=0.0)
    limits = AdmissionLimits(blocked=frozenset(one.booked.circuits[0].ends))
    changed, refused = book.reroute(one.pair, 1.0, limits)
    assert (changed, list(refused)) == ((), ["a"]), "both ports of both planes are taken"
    assert book.get("b") == other


@pytest.mark.parametrize("end", [State.RELEASING, State.EXPIRED, State.PREEMPTED])
def test_circuits_of_what_ended_are_leaving_until_they_are_gone(fabric, end):
    book = ReservationBook(fabric)
    for name in "ab":
        book.add(name, request(bandwidth_mbps=10.0), now=0.0)
        book.transition(name, State.ACTIVE)
        assert not book.get(name).leaves_path
    book.transition("a", end)
    assert [r.id for r in book.leaving()] == ["a"]
    if end is State.RELEASING:
        book.transition("a", State.RELEASED)
        assert [r.id for r in book.leaving()] == ["a"]
    (gone,) = book.leave_nothing(["a"])
    assert gone == book.get("a")
    assert not gone.leaves_path
    assert book.leaving() == ()


def test_what_had_no_circuits_leaves_none(fabric):
    book = ReservationBook(fabric)
    book.add("a", replace(request(), start_unix_s=60.0, duration_s=10.0), now=0.0)
    book.transition("a", State.EXPIRED)
    assert book.leaving() == ()


def test_reservations_on_a_circuit(fabric):
    book = ReservationBook(fabric)
    for name, change in {"a": {}, "b": {"dst": "r3"}, "c": {"start_unix_s": 60.0}}.items():
        book.add(name, replace(request(bandwidth_mbps=10.0), **change), now=0.0)
    (circuit,) = book.get("a").booked.circuits
    assert book.get("c").booked.circuits == (circuit,)
    assert [r.id for r in book.on(circuit)] == ["a"], "c has not begun"
    assert book.on(direct_path(fabric, 2, 3).circuits[0]) == ()


def test_pruning_forgets_those_that_ended_first(fabric):
    book = ReservationBook(fabric)
    for number in range(5):
        book.add(f"a{number}", request(bandwidth_mbps=1.0), now=float(number))
    for ended_s, over in enumerate(("a3", "a1", "a0"), start=10):
        book.transition(over, State.FAILED, now=float(ended_s))
    again = ReservationBook(fabric, book)
    for one in (book, again):
        assert one.prune(keep=1) == ("a3", "a1"), "a0 was admitted first, and has just ended"
        assert [r.id for r in one] == ["a0", "a2", "a4"]
        assert "a3" not in one


def test_one_for_ever_that_others_give_way_to_ends_within_the_calendar(fabric):
    book = ReservationBook(fabric)
    for number, ends in enumerate((("r1", "r2"), ("r3", "r4"), ("r1", "r3"), ("r2", "r4"))):
        book.add(f"low{number}", request(*ends, 100.0), now=0.0)
    forever = replace(request("r1", "r4", 100.0), end_unix_s=LATEST_UNIX_S, priority=5)
    high = book.add("high", forever, now=1.0)
    assert high.starts_unix_s > 1.0, "somebody gives way to it"
    assert high.expires_unix_s == LATEST_UNIX_S
    with pytest.raises(AdmissionError, match="high"):
        book.add("next", replace(request("r3", "r4", 100.0), start_unix_s=1000.0), now=2.0)


@pytest.mark.parametrize("unix_s", [LATEST_UNIX_S, LATEST_UNIX_S + 60, math.inf])
def test_moments_that_no_calendar_has_are_told_all_the_same(unix_s):
    assert moment(unix_s) == "9999-12-31T23:59:59Z"


def test_a_refusal_says_who_holds_the_ports(fabric):
    book = ReservationBook(fabric)
    book.add("a", request("r1", "r3", 60.0), now=0.0)
    book.add("b", request("r4", "r1", 60.0, 90.0), now=0.0)
    with pytest.raises(AdmissionError) as caught:
        book.add("c", request("r1", "r2", 70.0), now=0.0)
    assert str(caught.value) == (
        "no path with 70 Mb/s to spare between r1 and r2: at r1 hyt-r1-p1 (plane p1) is held by a "
        "(r1-r3, 60 of 100 Mb/s), hyt-r1-p2 (plane p2) is held by b (r1-r4, 60 of 100 Mb/s, until "
        "1970-01-01T00:01:30Z); at r2 hyt-r2-p1 (plane p1) is free, hyt-r2-p2 (plane p2) is free; "
        "ask for at most 40 Mb/s, or start at 1970-01-01T00:01:30Z"
    )
    assert caught.value.alternatives == (Alternative(40.0, None), Alternative(70.0, 90.0))
    for number, one in enumerate(caught.value.alternatives):
        instead = replace(
            request("r1", "r2", one.bandwidth_mbps, 10.0), start_unix_s=one.start_unix_s
        )
        book.add(f"c{number}", instead, now=0.0)


def test_ports_out_of_use_count_only_for_what_starts_now(fabric):
    book = ReservationBook(fabric)
    limits = AdmissionLimits(blocked=frozenset(port.id for port in fabric.ports_of(RackId(0))))
    with pytest.raises(AdmissionError, match="is out of use"):
        book.add("a", request(), 0.0, limits)
    later = replace(request(), start_unix_s=60.0)
    assert book.add("a", later, 0.0, limits).state is State.SCHEDULED


def test_the_end_of_a_booking_that_is_not_in_the_way_is_no_remedy(fabric):
    book = ReservationBook(fabric)
    book.add("other", request("r2", "r3", 60.0, 90.0), now=0.0)
    limits = AdmissionLimits(blocked=frozenset(port.id for port in fabric.ports_of(RackId(0))))
    with pytest.raises(AdmissionError, match="is out of use") as caught:
        book.add("a", request(), 0.0, limits)
    assert caught.value.alternatives == ()


@pytest.mark.parametrize(
    ("number", "held"), [(4, "a0 .* and a3 [^)]*\\);"), (5, "a0 .* and a3 [^)]*\\) and 1 more;")]
)
def test_of_many_who_hold_a_port_four_are_named(number, held):
    book = ReservationBook(small_fabric(racks=4, planes=1))
    for one in range(number):
        book.add(f"a{one}", request("r1", "r2", 20.0), now=0.0)
    with pytest.raises(AdmissionError, match=rf"at r1 o1\.1 \(plane p1\) is held by {held}"):
        book.add("b", request("r1", "r3", 20.0), now=0.0)


def test_of_many_on_a_full_circuit_four_are_named():
    book = ReservationBook(small_fabric(racks=4, planes=1))
    for one in range(6):
        book.add(f"a{one}", request("r1", "r2", 15.0), now=0.0)
    with pytest.raises(AdmissionError, match=r"\(by a0, a1, a2, a3 and 2 more\)"):
        book.add("b", request("r1", "r2", 15.0), now=0.0)


def test_of_many_ports_four_are_described_and_the_rest_counted():
    fabric = small_fabric(racks=4, planes=6)
    blocked = frozenset(port.id for port in fabric.ports_of(RackId(1))[:5])
    far = frozenset(port.id for rack in (2, 3) for port in fabric.ports_of(RackId(rack)))
    own = replace(request("r1", "r2", 70.0), service=ServiceClass.GUARANTEED)
    left = frozenset(port.id for port in fabric.ports_of(RackId(0))[5:])
    with pytest.raises(AdmissionError) as caught:
        ReservationBook(fabric).add("a", own, 0.0, AdmissionLimits(blocked=blocked | far | left))
    said = str(caught.value)
    assert said.startswith("no exclusive path with 70 Mb/s to spare between r1 and r2: at r1 o1.1")
    free = ", ".join(f"o{n}.1 (plane p{n}) is free" for n in range(1, 5))
    assert f"at r1 {free}, and 2 more ports (1 free); at r2" in said
    assert said.endswith("and 2 more ports (1 free)")


@pytest.mark.parametrize(("blocked", "words"), [((), ""), ((7,), " and ports out of use")])
def test_what_others_may_read_of_a_refusal_tells_of_ports_out_of_use_where_there_are_any(
    blocked, words
):
    book = ReservationBook(small_fabric(racks=4, planes=1))
    book.add("a", request("r1", "r2", 60.0), now=0.0)
    limits = AdmissionLimits(blocked=frozenset(map(PortId, blocked)))
    with pytest.raises(AdmissionError) as caught:
        book.add("b", request("r1", "r2", 60.0), 0.0, limits)
    assert (
        f"beside the promised reservations{words}; ask for at most 40 Mb/s"
        in caught.value.in_public
    )


# --- time -----------------------------------------------------------------------------------


def test_one_after_the_other_share_what_at_once_they_could_not(fabric):
    book = ReservationBook(fabric)
    for number in range(3):
        window = {"start_unix_s": 100.0 * number + 10, "duration_s": 100.0}
        book.add(f"a{number}", replace(request(bandwidth_mbps=100.0), **window), now=0.0)
    across = replace(request(bandwidth_mbps=1.0), start_unix_s=100.0, end_unix_s=120.0)
    with pytest.raises(AdmissionError, match="and 100 Mb/s are reserved") as caught:
        book.add("b", across, now=0.0)
    assert caught.value.alternatives == (Alternative(1.0, 310.0, 330.0),)
    assert str(caught.value).endswith(
        "; start at 1970-01-01T00:05:10Z and end at 1970-01-01T00:05:30Z"
    )
    later = replace(across, start_unix_s=310.0, end_unix_s=330.0)
    assert book.add("b", later, now=0.0).expires_unix_s == 330.0


def test_a_pairs_path_that_is_anothers_later_is_not_said_to_be_full():
    book = ReservationBook(small_fabric(racks=4, planes=1))
    book.add("mine", request("r1", "r2", 40.0, 600.0), now=0.0)
    later = replace(request("r1", "r3", 100.0, 600.0), start_unix_s=600.0)
    book.add("later", later, now=0.0)
    with pytest.raises(AdmissionError) as caught:
        book.add("new", request("r1", "r2", 10.0, 900.0), now=1.0)
    assert str(caught.value) == (
        "no path with 10 Mb/s to spare between r1 and r2: traffic has to take the path promised "
        "already, and at r1 o1.1 (plane p1) is held by mine (r1-r2, 40 of 100 Mb/s, until "
        "1970-01-01T00:10:00Z) and later (r1-r3, 100 of 100 Mb/s, until 1970-01-01T00:20:00Z); "
        "start at 1970-01-01T00:20:00Z"
    )
    limits = AdmissionLimits(blocked=frozenset(book.get("mine").booked.circuits[0].ends[1:]))
    with pytest.raises(AdmissionError, match=r"at r2 o1\.1 \(plane p1\) is out of use$"):
        book.add("new", request("r1", "r2", 10.0, 9.0), 1.0, limits)


@pytest.mark.parametrize("held_mbps", [33.33333, 100 / 3, 0.00001, 90.1, 99.0])
def test_as_much_as_a_refusal_names_is_admitted(held_mbps):
    book = ReservationBook(small_fabric(racks=4, planes=1))
    book.add("a", request("r1", "r2", held_mbps), now=0.0)
    with pytest.raises(AdmissionError) as caught:
        book.add("b", request("r1", "r2", 100.0), now=0.0)
    (told,) = re.findall(r"ask for at most (\S+) Mb/s", str(caught.value))
    assert book.add("b", request("r1", "r2", float(told)), now=0.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start_unix_s": 49.0}, "has passed: leave start_unix_s out"),
        ({"end_unix_s": 49.0}, "is not after the start"),
        ({"start_unix_s": 60.0, "end_unix_s": 60.0}, "is not after the start"),
        ({"start_unix_s": 1e300}, "beyond the year 9999"),
        ({"duration_s": 1e300}, "beyond the year 9999"),
        ({"hold_s": 0.0}, "hold_s must be"),
    ],
)
def test_times_that_make_no_sense(fabric, change, words):
    book = ReservationBook(fabric)
    with pytest.raises(WrongRequest, match=words):
        book.add("a", replace(request(), **change), now=50.0)
    assert len(book) == 0


def test_what_is_held_keeps_its_room_until_it_lapses(fabric):
    book = ReservationBook(fabric)
    for name in ("a", "b"):
        assert book.add(name, replace(request(), hold_s=5.0), 0.0).state is State.HELD
        if name == "a":
            book.transition("a", State.COMMITTED)
            assert book.begin("a", 1.0).state is State.ACTIVATING
            assert book.get("a").held_until_unix_s is None
            book.transition("a", State.FAILED)
    with pytest.raises(AdmissionError):
        book.add("c", request(), now=1.0)
    assert book.expired(4.9) == ()
    assert book.expired(5.0) == ("b",)
    book.transition("b", State.EXPIRED)
    book.add("c", request(), now=5.0)


def test_the_scheduled_are_due_at_their_start(fabric):
    book = ReservationBook(fabric)
    book.add("a", replace(request(), start_unix_s=30.0), now=0.0)
    assert book.pinned() == ()
    assert book.due(29.9) == ()
    assert book.due(30.0) == ("a",)
    book.transition("a", State.ACTIVATING)
    assert book.due(30.0) == ()
    assert book.pinned()[0].path == book.get("a").booked


def test_a_pair_is_booked_anew_around_ports_that_are_out_of_use(fabric):
    book = ReservationBook(fabric)
    for name, mbps in (("a", 30.0), ("b", 60.0)):
        book.add(name, request(bandwidth_mbps=mbps), now=0.0)
    book.add("c", replace(request(), start_unix_s=99.0, duration_s=1.0, bandwidth_mbps=5.0), 0.0)
    old = book.get("a").booked
    blocked = AdmissionLimits(blocked=frozenset({old.circuits[0].a}))
    changed, refused = book.reroute((RackId(0), RackId(1)), 1.0, blocked)
    assert [r.id for r in changed] == ["a", "b", "c"]
    assert not refused
    assert {r.booked for r in book} == {direct_path(fabric, 0, 1, plane=1)}
    everything = AdmissionLimits(blocked=frozenset(port.id for port in fabric.ports))
    changed, refused = book.reroute((RackId(0), RackId(1)), 1.0, everything)
    assert set(refused) == {"a", "b"}
    assert [r.id for r in changed] == ["c"], (
        "its time has not come: the ports may be mended by then"
    )


def test_what_would_fit_of_one_that_has_failed(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(duration_s=1000.0), 0.0)
    book.transition("a", State.FAILED, "cut", now=1.0)
    limits = AdmissionLimits(1)
    assert book.fitting_mbps("a", 10.0, limits) == 80.0
    for number, plane in enumerate(fabric.planes):
        mbps = 70.0 + 5 * number
        book.add(f"b{plane.id}", request("r1", f"r{3 + number}", mbps), 2.0)
    assert book.fitting_mbps("a", 10.0, limits) is None
    relayed = AdmissionLimits(2)
    book.add("c", request("r3", "r2", 40.0), 3.0)
    assert book.fitting_mbps("a", 10.0, relayed) == 30.0
    assert book.get("a").state is State.FAILED, "nothing is entered"
    blocked = AdmissionLimits(2, frozenset(port.id for port in fabric.ports))
    assert book.fitting_mbps("a", 10.0, blocked) is None
    with pytest.raises(UnknownName):
        book.fitting_mbps("z", 10.0, limits)


def test_standing_paths_take_nothing_from_what_would_fit(fabric):
    book = ReservationBook(fabric)
    book.add("a", request(), 0.0)
    book.transition("a", State.FAILED, "cut", now=1.0)
    standing = tuple(
        direct_path(fabric, rack, 2, plane.id) for rack in (0, 1) for plane in fabric.planes
    )
    assert book.fitting_mbps("a", 10.0, AdmissionLimits(1, standing=standing)) == 80.0
