"""Any bytes give events or a protocol error, and the same result for any split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.codecs import tl1, tl1_values
from tests.unit.drivers.codec_inputs import CODECS

FRAGMENTS = [
    b"\r\n\n   NE 16-11-07 11:20:14\r\n",
    b"   ( nil ) 16-11-07 11:20:14\n",
    b"M  1 COMPLD\r\n",
    b"M  2 DENY\r\n   IDNV\r\n",
    b"M 1 RTRV IIAC\r\n",
    b"*C 7 REPT ALM EQPT\r\n",
    b"A 9 REPT EVT\r\n",
    b'   "1,17"\r\n',
    b'"a\\";b"',
    b'"',
    b"\\",
    b"/*",
    b"*/",
    b"/",
    b"*",
    b";",
    b">\r\n",
    b"\r\n",
    b"\n",
    b"<",
    b"agent>",
    b"IP 1\r\n<",
    b"\x1b[1m",
    b"\x00",
    b"\xff",
    b"\x85",
    b"\xa0",
    b" ",
    b"(@1,2),(@17,18)\r",
    b"16,16\r\n",
    b'-221,"x"\r',
    b"(-2.1,9.91E37);1\r",
    b"OXC> ",
    b"OXC",
    b"OXC>",
    b"\x04\x15\x00\x08\x00\x00\x00\x02",
    b"\x04\x13\x00\x10\x00\x00\x00\x03\x00\x01\x00\x00",
]
INPUTS = st.binary(max_size=300) | st.lists(
    st.sampled_from(FRAGMENTS) | st.binary(max_size=4), max_size=30
).map(b"".join)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@given(data=INPUTS)
def test_arbitrary_bytes(codec, data):
    codec.check(data)


@pytest.mark.parametrize(
    ("codec", "path"),
    [(codec, path) for codec in CODECS for path in codec.kept()],
    ids=lambda value: getattr(value, "stem", getattr(value, "name", "")),
)
def test_kept_inputs(codec, path):
    codec.check(path.read_bytes())


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_inputs_are_kept(codec):
    assert len(codec.kept()) > 5


_WORD = st.from_regex(r"[A-Za-z0-9_.-]{1,10}", fullmatch=True)


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9]{0,8}", fullmatch=True), _WORD, min_size=1))
def test_pairs_survive(pairs):
    assert tl1_values.parse_pairs(tl1_values.format_pairs(pairs)) == pairs


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30))
def test_every_printable_password_can_be_sent(password):
    sent = tl1.encode_command(tl1.login("admin", password), "1")
    assert sent.endswith(";")
    assert sent.startswith("ACT-USER::admin:1::")
