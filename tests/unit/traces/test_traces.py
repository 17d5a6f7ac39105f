"""Traces in all forms: contents, errors by line, and windows compared with a plain sum."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.offline.study import Limits, plain_fabric
from apps.traces.comparing import compare
from apps.traces.reading import Flow, TraceError, in_order, read_trace, seconds, summarise
from apps.traces.synthetic import SAMPLE, SAMPLE_COFLOWS, SAMPLE_RACKS, SAMPLE_SEED, coflow_lines
from apps.traces.windows import flows_of_window, rack_numbers, windows
from hydra.errors import PlanError
from topology.algorithms import ENTRIES

COFLOWS = "4 2\n1 500 2 0 1 1 2:6.0\n2 2500 1 3 2 0:1 3:2\n"


@pytest.fixture
def trace(tmp_path):
    def write(text):
        path = tmp_path / "trace.txt"
        path.write_text(text)
        return path

    return write


def test_coflows_become_flows_of_equal_parts(trace):
    assert list(read_trace(trace(COFLOWS))) == [
        Flow("0", "2", 3e6, 0.5),
        Flow("1", "2", 3e6, 0.5),
        Flow("3", "0", 1e6, 2.5),
        Flow("3", "3", 2e6, 2.5),
    ]


def test_flows_with_names_comments_and_empty_lines(trace):
    path = trace("# made by hand\n\nleft right 1e3 0.25 # a small one\nright left 5 0.25\n")
    assert list(read_trace(path)) == [
        Flow("left", "right", 1000, 0.25),
        Flow("right", "left", 5, 0.25),
    ]


def test_csv_has_its_columns_in_any_order_and_others_besides(trace):
    path = trace('job,start,src,"dst",bytes\n7, 0.25,left,"right",1e3\n\n7,0.5,left,left,5\n')
    assert list(read_trace(path)) == [
        Flow("left", "right", 1000, 0.25),
        Flow("left", "left", 5, 0.5),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "time,src,dst,size\n",
            ":1: the header has time, src, dst, size, and no bytes, start: name the columns src, "
            r"dst, bytes and start \(in seconds\), in any order",
        ),
        ("src,dst,bytes,start\na,b,1\n", ":2: 3 fields: the header has 4"),
        ("src,dst,bytes,start\na b,c,1,0\n", ":2: 'a b': no field is empty or has blanks"),
        ("src,dst,bytes,start\na,,1,0\n", ":2: '': no field is empty"),
        ("src,dst,bytes,start\na,b,much,0\n", ":2: bytes: 'much' is not a number"),
        ("src,dst,bytes,start\na,b,1,2\na,b,1,1\n", ":3: starts at 1 s, the line above at 2 s"),
    ],
)
def test_errors_in_csv_name_the_line_and_what_is_expected(trace, text, told):
    with pytest.raises(TraceError, match=told):
        list(read_trace(trace(text)))


def test_summary(trace):
    summary = summarise(trace(COFLOWS))
    assert summary.racks == ("0", "1", "2", "3")
    assert (summary.flows, summary.local_flows) == (4, 1)
    assert (summary.size_bytes, summary.local_bytes) == (9e6, 2e6)
    assert (summary.first_s, summary.last_s) == (0.5, 2.5)


def test_all_racks_count_that_coflows_announce(trace):
    assert summarise(trace("4 1\n1 0 1 1 1 3:2\n")).racks == ("0", "1", "2", "3")


@pytest.mark.parametrize("text", ["a b 1 0\na b 1 1\n", COFLOWS])
def test_a_byte_order_mark_is_no_part_of_a_name(trace, text):
    plain = list(read_trace(trace(text)))
    marked = trace("\ufeff" + text)
    assert list(read_trace(marked)) == plain
    assert "\ufeff" not in "".join(summarise(marked).racks)


SINCE_1970_S = 1_700_000_000


def test_times_since_1970_are_told_in_full(trace):
    assert seconds(SINCE_1970_S + 0.25) == "1700000000.25"
    assert (seconds(0.0), seconds(10.5)) == ("0", "10.5")
    path = trace(f"a b 1 {SINCE_1970_S + 7}\na b 1 {SINCE_1970_S}\n")
    with pytest.raises(TraceError, match="starts at 1700000000 s, the line above at 1700000007 s"):
        list(read_trace(path))
    path = trace(f"a b 1 {SINCE_1970_S}\na b 1 {SINCE_1970_S + 7}\n")
    assert summarise(path).doubt() is None


@pytest.mark.parametrize(
    ("first", "last", "why"),
    [
        (0, 10_000_000_000, "lasts 317 years"),
        (SINCE_1970_S * 10**9, SINCE_1970_S * 10**9 + 10, "begins 53,869,749,284 years after 1970"),
        (SINCE_1970_S * 1000, SINCE_1970_S * 1000 + 10, "begins 53,870 years after 1970"),
        (0, 365 * 86_400, None),
    ],
)
def test_times_in_a_finer_unit_are_doubted(trace, first, last, why):
    doubt = summarise(trace(f"a b 1 {first}\na b 1 {last}\n")).doubt()
    assert (doubt is None) == (why is None)
    if why is not None:
        assert why in doubt
        assert "divide finer units" in doubt


def test_it_is_a_stream(trace):
    """Flows come before the end of the file is read, and before a bad line."""
    flows = read_trace(trace("a b 1 0\na b 1 1\nnonsense\n"))
    assert [flow.start_s for flow in itertools.islice(flows, 2)] == [0, 1]
    with pytest.raises(TraceError, match=r"trace\.txt:3: 1 fields"):
        next(flows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a b 1\n", ":1: 3 fields"),
        ("a b 1 0\na b -1 0\n", ":2: bytes: -1 must be finite"),
        ("a b 1 0\na b much 0\n", ":2: bytes: 'much' is not a number"),
        ("a b 1 nan\n", ":1: start: nan"),
        ("a b 1 2\n\na b 1 1\n", ":3: starts at 1 s, the line above at 2 s"),
        ("a b\n", ":1: neither"),
        ("# of today\n\na b\n", ":3: neither"),
        ("0 0\n", ":1: 0 racks"),
        ("\n0 0\n", ":2: 0 racks"),
        ("#\n2 2\n1 0 1 0 1 1:1\n", ":3: line 2 announces 2 coflows, there are 1"),
        ("#\n2 2\n", ":2: line 2 announces 2 coflows, there are 0"),
        ("#\n2 1\n1 0 1 0 1 2:1\n", ":3: rack '2': line 2 announces racks 0 to 1"),
        ("2 2\n1 0 1 0 1 1:1\n", ":2: line 1 announces 2 coflows, there are 1"),
        ("2 1\n1 0 1 0 1 2:1\n", ":2: rack '2'"),
        ("2 1\n1 0 1 0 1 1\n", ":2: '1' is not RACK:MEGABYTES"),
        ("2 1\n1 0 2 0\n", ":2: ends after 4 fields"),
        ("2 1\n1 0 x 0\n", ":2: mappers: 'x'"),
        ("2 1\n1 0 1 0 1 1:1 7\n", ":2: '7' stands after"),
        ("2 1\n1 0 0 1 1:1\n", ":2: has reducers and no mapper"),
        ("2 2\n1 9 1 0 1 1:1\n2 8 1 0 1 1:1\n", ":3: starts at 0.008 s"),
    ],
)
def test_errors_by_line(trace, text, message):
    with pytest.raises(TraceError) as caught:
        list(read_trace(trace(text)))
    assert message in str(caught.value)
    assert "trace.txt" in str(caught.value)


def test_what_can_t_be_read(tmp_path):
    with pytest.raises(TraceError, match="can't be read"):
        list(read_trace(tmp_path / "none.txt"))
    path = tmp_path / "bytes.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="not UTF-8"):
        list(read_trace(path))


@given(st.text(alphabet="01 :.\nab-#", max_size=60))
def test_any_text_is_read_or_refused_by_name(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text(text)
    try:
        flows = list(read_trace(path))
    except TraceError:
        return
    starts = [flow.start_s for flow in flows]
    assert starts == sorted(starts)


def test_racks_called_by_numbers_come_first_in_their_order():
    assert in_order({"10", "9", "b", "a"}) == ("9", "10", "a", "b")
    assert in_order({"42", "007", "0", "00"}) == ("0", "00", "007", "42")
    huge = "9" * 5000
    assert in_order({huge, "1"}) == ("1", huge)


_flow = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 10**9), st.floats(0, 100))


@given(st.lists(_flow), st.floats(0.1, 50), st.floats(0.1, 10))
def test_windows_hold_all_bytes_between_racks(rows, window_s, scale):
    flows = [Flow(str(a), str(b), size, at) for a, b, size, at in sorted(rows, key=lambda r: r[3])]
    numbers = {str(rack): rack for rack in range(4)}
    cut = list(windows(flows, numbers, 4, window_s, scale))
    expected: dict[int, np.ndarray] = {}
    for a, b, size, at in rows:
        if a != b:
            matrix = expected.setdefault(int(at // window_s), np.zeros((4, 4)))
            matrix[a, b] += size * 8 * scale / 1e6 / window_s
    assert [window.number for window in cut] == sorted(expected)
    for window in cut:
        assert np.allclose(window.demand_mbps, expected[window.number])
        assert window.start_s == window.number * window_s
        its = flows_of_window(iter(flows), window.number, window_s)
        assert sum(flow.src != flow.dst for flow in its) == window.flows


def test_racks_that_the_fabric_has_stand_for_themselves():
    fabric = ("r1", "r2", "r3")
    assert rack_numbers(("r3", "r2"), 3, fold=False, fabric=fabric) == {"r3": 2, "r2": 1}
    assert rack_numbers(("r3", "x"), 3, fold=False, fabric=fabric) == {"r3": 0, "x": 1}


def test_a_larger_trace_must_be_folded():
    with pytest.raises(PlanError, match="3 racks, the fabric 2"):
        rack_numbers(("a", "b", "c"), 2, fold=False)
    assert rack_numbers(("a", "b", "c"), 2, fold=True, fabric=("a", "b")) == {
        "a": 0,
        "b": 1,
        "c": 0,
    }


def test_the_shipped_sample_is_what_its_generator_makes():
    made = list(coflow_lines(SAMPLE_RACKS, SAMPLE_COFLOWS, SAMPLE_SEED))
    assert SAMPLE.read_text().splitlines() == made
    assert list(coflow_lines(SAMPLE_RACKS, SAMPLE_COFLOWS, SAMPLE_SEED + 1)) != made


def test_in_the_sample_few_coflows_carry_most():
    sizes: dict[float, float] = {}
    for flow in read_trace(SAMPLE):
        sizes[flow.start_s] = sizes.get(flow.start_s, 0) + flow.size_bytes
    largest = sorted(sizes.values(), reverse=True)
    assert sum(largest[: len(largest) // 4]) > 0.6 * sum(largest)


def test_all_algorithms_on_windows_of_the_sample():
    flows = read_trace(SAMPLE)
    numbers = rack_numbers(summarise(SAMPLE).racks, 32, fold=False)
    cut = list(itertools.islice(windows(flows, numbers, 32, 30.0), 2))
    found = {one.algorithm: one for one in compare(plain_fabric(32, 4, 400), cut, Limits(3))}
    assert found.keys() == ENTRIES.keys()
    assert found["static"].served_share == 0
    assert found["hydra-bfs+"].served_share >= found["hydra-bfs"].served_share > 0
    for one in found.values():
        assert len(one.attempts) == 2
        assert not any(attempt.problems for attempt in one.attempts)
    second = found["hydra-bfs"].attempts[1]
    assert second.disconnect > 0  # the plan started from the first window's circuits


def test_no_window_is_an_error():
    with pytest.raises(PlanError, match="no window"):
        compare(plain_fabric(4, 1, 10), [], Limits(3))
