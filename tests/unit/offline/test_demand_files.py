"""Every form of a demand file gives the same matrix; errors name file and place."""

import json

import numpy as np
import pytest

from apps.offline.demand_files import read_demand, read_flows
from hydra.errors import PlanError

RACKS = ["r1", "r2", "r3"]
WANTED = np.array([[0.0, 80.0, 0.0], [10.0, 0.0, 0.0], [0.0, 2.5, 0.0]])
FLOWS = [
    {"src": "r1", "dst": "r2", "mbps": 30},
    {"src": "r1", "dst": "r2", "mbps": 50},
    {"src": "r2", "dst": "r1", "mbps": 10},
    {"src": "r3", "dst": "r2", "mbps": 2.5},
]
TEXTS = {
    "matrix.csv": "0,80,0\n10,0,0\n0,2.5,0\n",
    "spaced.txt": "0.0 8.0e+01 0.0\n\n10 0 0\n0 2.5 0\n",
    "tabs.tsv": "0\t80\t0\n10\t0\t0\n0\t2.5\t0\n",
    "named.csv": ",r3,r1,r2\nr3,0,0,2.5\nr1,0,0,80\nr2,0,10,0\n",
    "some.csv": ";r2;r1\nr2;0;10\nr1;80;0\n",
    "flows.csv": "src,dst,mbps\nr1,r2,30\nr1,r2,50\nr2,r1,10\nr3,r2,2.5\n",
    "numbers.csv": "\ufeffmbps,note,src,dst\n80,big,0,1\n10,,1,0\n2.5,,2,1\n",
    "matrix.json": json.dumps(WANTED.tolist()),
    "flows.json": json.dumps(FLOWS),
    "body.json": json.dumps({"demand": FLOWS, "planes": ["p1"]}),
    "measured.json": json.dumps(
        {"entries": [{"estimated_mbps": f["mbps"], "rate_mbps": 1, **f} for f in FLOWS]}
    ),
    "indexed.json": json.dumps(
        {"racks": [2, "r1", 1], "mbps": [[0, 0, 2.5], [0, 0, 80], [0, 10, 0]]}
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_every_form(tmp_path, name):
    path = tmp_path / name
    path.write_text(TEXTS[name], encoding="utf-8")
    wanted = WANTED.copy()
    if name == "some.csv":  # racks missing in a file have no demand
        wanted[2, 1] = 0
    np.testing.assert_array_equal(read_demand(path, RACKS), wanted)


ARRAYS = {
    "demand": {"demand": WANTED},
    "the only one": {"traffic": WANTED},
    "named": {"demand": WANTED[::-1, ::-1], "racks": np.array(RACKS[::-1])},
    "flows": {
        "src": np.array([0, 0, 1, 2]),
        "dst": np.array([1, 1, 0, 1]),
        "mbps": np.array([30, 50, 10, 2.5]),
    },
}


@pytest.mark.parametrize("name", ARRAYS)
def test_npz(tmp_path, name):
    path = tmp_path / "demand.npz"
    np.savez_compressed(path, **ARRAYS[name])
    np.testing.assert_array_equal(read_demand(path, RACKS), WANTED)


def test_npy_and_flows(tmp_path):
    path = tmp_path / "demand.npy"
    np.save(path, WANTED)
    np.testing.assert_array_equal(read_demand(path, RACKS), WANTED)
    assert read_flows(path, RACKS) == [
        {"src": "r1", "dst": "r2", "mbps": 80.0},
        {"src": "r2", "dst": "r1", "mbps": 10.0},
        {"src": "r3", "dst": "r2", "mbps": 2.5},
    ]


def test_a_rack_that_is_called_like_a_number_is_meant_by_it(tmp_path):
    path = tmp_path / "flows.csv"
    path.write_text("src,dst,mbps\n1,2,5\n")
    assert read_demand(path, ["2", "1"]).tolist() == [[0, 0], [5, 0]]


def test_a_blank_diagonal_of_named_racks_is_no_demand(tmp_path):
    path = tmp_path / "demand.csv"
    path.write_text(",r2,r1,r3\nr2,,10,0\nr1,80,,0\nr3,2.5,0,\n")
    np.testing.assert_array_equal(read_demand(path, RACKS), WANTED)


BAD = {
    "nan.csv": ("0,nan,0\n0,0,0\n0,0,0\n", r"demand\[0, 1\] is nan"),
    "negative.csv": ("0,-1,0\n0,0,0\n0,0,0\n", r"demand\[0, 1\] is -1"),
    "infinite.csv": ("0,1e999,0\n0,0,0\n0,0,0\n", r"demand\[0, 1\] is inf"),
    "diagonal.csv": ("0,0,0\n0,7,0\n0,0,0\n", r"demand\[1, 1\] is 7"),
    "small.csv": ("0,1\n1,0\n", r"shape \(2, 2\): 3 racks need"),
    "oblong.csv": ("0,1,2\n1,0,2\n", r"shape \(2, 3\)"),
    "ragged.csv": ("0,1,2\n1,0\n1,2,0\n", "line 2 has 2 numbers, line 1 has 3"),
    "word.csv": ("0,1,2\n1,0,much\n1,2,0\n", "line 2, column 3: 'much' is not a number"),
    "blank.csv": ("0,,2\n1,0,2\n1,2,0\n", "line 1 is neither"),
    "hole.csv": (
        ",r1,r2,r3\nr1,,1,\nr2,1,,1\nr3,1,1,\n",
        "line 2, column r3: empty: write 0 for no demand",
    ),
    "hollow.csv": ("0,1,2\n1,0,\n1,2,0\n", "line 2, column 3: empty: write 0"),
    "empty.csv": ("\n", "is empty"),
    "headless.csv": ("r1,r2,80\n", "neither a row of numbers, nor the heading"),
    "twice.csv": (",r1,r1\nr1,0,1\nr1,1,0\n", "'r1' has two rows"),
    "crossed.csv": (
        ",r1,r2\nr2,0,1\nr1,1,0\n",
        "another order than the columns: 'r2' is in the place of 'r1'",
    ),
    "no_rows.csv": (
        "rack,r1,r2,r3\nr1,0,1,2\n",
        "no row for 'r2', 'r3', named as a column: give each rack a row and a column",
    ),
    "other_row.csv": (",r1,r2\nr1,0,1\nr3,1,0\n", "no row for 'r2', named as a column"),
    "no_column.csv": (",r1,r2\nr1,0,1\nr2,1,0\nr3,1,0\n", "no column for 'r3', named as a row"),
    "two_rows.csv": (",r1,r2\nr1,0,1\nr2,1,0\nr1,1,0\n", "rack 'r1' has two rows: add them up"),
    "two_columns.csv": (",r1,r2,r1\nr1,0,1,0\nr2,1,0,1\n", "rack 'r1' has two columns: add"),
    "unknown.csv": ("src,dst,mbps\nr1,r9,1\n", "line 2: no rack 'r9' among 3: did you mean"),
    "beyond.csv": ("src,dst,mbps\n0,3,1\n", "line 2: no rack '3'"),
    "short.csv": ("src,dst,mbps\nr1,r2\n", "line 2 has 2 cells, the heading 3"),
    "minus.csv": ("src,dst,mbps\nr1,r2,-5\n", "line 2: -5.0 Mbps"),
    "cancel.csv": ("src,dst,mbps\nr1,r2,nan\n", "line 2: nan Mbps"),
    "self.csv": ("src,dst,mbps\nr1,r1,5\n", r"demand\[0, 0\] is 5"),
    "broken.json": ("[[0,1", "is not JSON"),
    "deep.json": ("[" * 30_000, "is not JSON: values are nested more than 64 levels deep"),
    "digits.json": (f"[[0,{'1' * 5000}],[0,0]]", "is not JSON: Exceeds the limit"),
    "large.json": (f"[[0,{'1' * 400}],[0,0]]", "not a matrix of numbers: int too large"),
    "large-flow.json": (
        f'[{{"src":0,"dst":1,"mbps":{"1" * 400}}}]',
        "flow 0: inf Mbps: entries must be finite",
    ),
    "quote.csv": ('src,dst,mbps\nr1,"r2,1\n' + "x" * 200_000, "not a table: field larger than"),
    "scalar.json": ("5", "neither a list of rows"),
    "ragged.json": ("[[0,1],[1]]", "not a matrix of numbers"),
    "text.json": ('[["a"]]', "not a matrix of numbers"),
    "nan.json": ("[[0,NaN,0],[0,0,0],[0,0,0]]", r"demand\[0, 1\] is nan"),
    "half.json": ('[{"src": "r1", "mbps": 5}]', "flow 0 has no 'dst'"),
    "mixed.json": ('[{"src": "r1", "dst": "r2", "mbps": 5}, 7]', "flow 1 is no object"),
    "true.json": ('[{"src": "r1", "dst": "r2", "mbps": true}]', "True is not a number"),
    "list.json": ('{"racks": "r1", "mbps": [[0]]}', '"racks" is not a list'),
    "uneven.json": ('{"racks": ["r1"], "mbps": [[0, 1], [1, 0]]}', "1 racks are named"),
    "list.yaml": ("- 1\n", "the file name does not show the format"),
    "junk.npz": ("junk", "is no NPZ file"),
    "junk.npy": ("junk", "is no NPY file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_named_with_the_place(tmp_path, name):
    text, message = BAD[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(PlanError, match=message) as raised:
        read_demand(path, RACKS)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": WANTED, "b": WANTED}, "holds a, b: demand, or src, dst and mbps"),
        ({"src": [0], "dst": [1, 2], "mbps": [3]}, "not equally long"),
        ({"src": WANTED}, "holds src: demand, or src, dst and mbps"),
        ({"demand": 1j * WANTED}, "not a matrix of real numbers"),
        ({"demand": np.array([object()])}, "is no NPZ file of numbers"),
        ({"src": [0], "dst": [7], "mbps": [3]}, "flow 0: no rack 7"),
    ],
)
def test_bad_npz(tmp_path, arrays, message):
    path = tmp_path / "demand.npz"
    np.savez(path, **arrays)
    with pytest.raises(PlanError, match=message):
        read_demand(path, RACKS)


def test_complex_numbers_are_no_rates(tmp_path):
    path = tmp_path / "demand.npy"
    np.save(path, 1j * WANTED)
    with pytest.raises(PlanError, match=r"demand\.npy: not a matrix of real numbers"):
        read_demand(path, RACKS)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(PlanError, match="can't be read: No such file"):
        read_demand(tmp_path / "none.csv", RACKS)
    with pytest.raises(PlanError, match="can't be read: Is a directory"):
        (tmp_path / "folder.csv").mkdir()
        read_demand(tmp_path / "folder.csv", RACKS)
    (tmp_path / "latin.csv").write_bytes(b"src,dst,mbps\nr\xe9,r2,5\n")
    with pytest.raises(PlanError, match="is not UTF-8 text"):
        read_demand(tmp_path / "latin.csv", RACKS)
