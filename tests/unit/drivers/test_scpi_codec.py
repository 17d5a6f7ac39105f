"""The SCPI codec: framing for any split, and values equal after encode and decode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.codecs import scpi

PORT = st.integers(0, 999_999)
TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
REPLIES = st.binary(max_size=200) | st.lists(
    st.sampled_from([b"1\r", b"(@1),(@17)\r\n", b"\r", b"\n", b"\x00", b"16,16\r", b'"'])
).map(b"".join)


def parse_result(text: str):
    """The whole answer, read by the driver in two steps."""
    faults, connections = scpi.parse_result(text)
    return faults, scpi.parse_connections(connections)


def decoded(chunks):
    """(lines, error) after feeding these chunks."""
    decoder, lines = scpi.ReplyDecoder(), []
    try:
        for chunk in chunks:
            decoder.receive(chunk)
            while (line := decoder.next_line()) is not None:
                lines.append(line)
    except scpi.ScpiError as error:
        return lines, str(error)
    return lines, None


@given(REPLIES)
def test_the_same_bytes_give_the_same_lines_however_they_are_split(data):
    assert decoded([data]) == decoded([data[i : i + 1] for i in range(len(data))])


@given(st.lists(TEXT))
def test_every_printable_line_arrives(lines):
    assert decoded(["".join(f"{line}\r" for line in lines).encode()]) == (lines, None)


def test_a_line_may_end_in_lf_and_the_first_be_empty():
    assert decoded([b"\n16,16\n1\r\n"]) == (["", "16,16", "1"], None)


def test_lines_before_a_bad_byte_arrive_and_then_it_raises_for_good():
    decoder = scpi.ReplyDecoder()
    decoder.receive(b"16,16\r1\x80\r1\r")
    assert decoder.next_line() == "16,16"
    for _ in range(2):
        with pytest.raises(scpi.ScpiError, match="byte 0x80 at position 1"):
            decoder.next_line()
    decoder.receive(b"1\r")
    with pytest.raises(scpi.ScpiError):
        decoder.next_line()


@pytest.mark.parametrize("split", [1, 4096, scpi.MAX_LINE_BYTES + 2])
@pytest.mark.parametrize("excess", [0, 1])
def test_a_line_has_a_longest_length(split, excess):
    data = b"x" * (scpi.MAX_LINE_BYTES + excess) + b"\r"
    lines, error = decoded(data[i : i + split] for i in range(0, len(data), split))
    assert (len(lines), error is None) == ((0, False) if excess else (1, True))


def test_a_command_ends_in_cr_lf():
    assert scpi.encode_line("*idn?") == b"*idn?\r\n"


@pytest.mark.parametrize("bad", ["a\rb", "a\nb", "é", "x" * (scpi.MAX_LINE_BYTES + 1)])
def test_a_command_that_would_break_the_framing_is_refused(bad):
    with pytest.raises(scpi.ScpiError):
        scpi.encode_line(bad)


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        (scpi.connect_command([(1, 17), (2, 18)]), ":oxc:swit:conn:add (@1,2),(@17,18)"),
        (scpi.disconnect_command([(1, 17)]), ":oxc:swit:conn:sub (@1),(@17)"),
        (scpi.port_state_query([2, 4, 6]), ":oxc:swit:port:stat? (@2,4,6)"),
    ],
)
def test_commands_as_in_the_manual(command, sent):
    assert command == sent


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (scpi.parse_connections, "(@1,2,3),(@19,18,22)", ((1, 19), (2, 18), (3, 22))),
        (scpi.parse_connections, "(@),(@)", ()),
        (scpi.parse_size, "16,16", (16, 16)),
        (scpi.parse_port_states, "(D,E,F)", ("D", "E", "F")),
        (
            scpi.parse_identity,
            "Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18",
            scpi.Identity("Polatis", "I-OST-24x24-LU1-DMHNS", "002414", "6.5.2.18"),
        ),
        (scpi.parse_faults, '0,"No error"', (scpi.DeviceFault(0, "No error"),)),
        (
            scpi.parse_faults,
            '-221,"Settings ""conflict""",-113,"Undefined, header"',
            (
                scpi.DeviceFault(-221, 'Settings "conflict"'),
                scpi.DeviceFault(-113, "Undefined, header"),
            ),
        ),
        (
            parse_result,
            '-222,"Data out of range; port 99";(@1),(@17)',
            ((scpi.DeviceFault(-222, "Data out of range; port 99"),), ((1, 17),)),
        ),
    ],
)
def test_replies_as_in_the_manual(parse, text, value):
    assert parse(text) == value


def faults_written(faults):
    """``-221,"Settings conflict"``; several are joined by commas."""
    quoted = ((one.code, one.message.replace('"', '""')) for one in faults)
    return ",".join(f'{code},"{message}"' for code, message in quoted)


CODECS = [
    (scpi.parse_ports, scpi.format_ports),
    (scpi.parse_connections, scpi.format_connections),
    (scpi.parse_size, lambda size: f"{size[0]},{size[1]}"),
    (scpi.parse_port_states, lambda states: f"({','.join(states)})"),
    (scpi.parse_identity, lambda who: f"{who.vendor},{who.model},{who.serial},{who.firmware}"),
    (scpi.parse_faults, faults_written),
    (parse_result, lambda r: f"{faults_written(r[0])};{scpi.format_connections(r[1])}"),
]
LIKELY = st.text('(@),0123456789"DEF- N', max_size=40)


@pytest.mark.parametrize(("parse", "write"), CODECS)
@given(text=LIKELY | st.text())
def test_what_the_decoder_accepts_the_encoder_reproduces(parse, write, text):
    try:
        value = parse(text)
    except scpi.ScpiError:
        return
    assert write(value) == text


@given(st.lists(st.tuples(PORT, PORT)))
def test_connections_survive(pairs):
    assert scpi.parse_connections(scpi.format_connections(pairs)) == tuple(pairs)


@given(st.lists(st.builds(scpi.DeviceFault, st.integers(-9999, 9999), TEXT), min_size=1))
def test_error_queues_survive(faults):
    assert scpi.parse_faults(faults_written(faults)) == tuple(faults)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (scpi.parse_connections, "(@1,2),(@17)"),
        (scpi.parse_connections, "(@1)"),
        (scpi.parse_ports, "(@01)"),
        (scpi.parse_ports, "(@1,)"),
        (scpi.parse_size, "16"),
        (scpi.parse_port_states, "D,E"),
        (scpi.parse_identity, "Polatis"),
        (scpi.parse_faults, ""),
        (scpi.parse_faults, '-221,"Settings'),
        (scpi.parse_faults, '-221,"a"-113,"b"'),
        (scpi.parse_complete, "0"),
        (parse_result, '0,"No error"'),
        (parse_result, "(@1),(@17)"),
        (parse_result, '0,"No error";'),
    ],
)
def test_bad_replies_are_refused(parse, text):
    with pytest.raises(scpi.ScpiError):
        parse(text)
