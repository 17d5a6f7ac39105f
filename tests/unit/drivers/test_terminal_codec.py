"""A terminal's output, cut into replies, for any split."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.codecs import terminal
from drivers.codecs.terminal import (
    MAX_LINE_BYTES,
    End,
    TerminalDecoder,
    TerminalError,
    encode_line,
)


def with_login() -> TerminalDecoder:
    def refuses(line: str) -> bool:
        return line == "login incorrect"

    questions = [End(question=text, refuses=refuses) for text in ("login: ", "password: ")]
    return TerminalDecoder([*questions, End(prompt="OXC> ", refuses=refuses)], End(prompt="OXC> "))


def without_prompt() -> TerminalDecoder:
    return TerminalDecoder((), End(is_last=lambda line: line in {"OK", "ERR"}))


def replies(decoder: TerminalDecoder, pieces: list[bytes]) -> tuple[list[str], str | None]:
    """All replies, and the error at the end if there is one."""
    found = []
    for piece in pieces:
        decoder.receive(piece)
    while True:
        try:
            reply = decoder.next_line()
        except TerminalError as error:
            return found, str(error)
        if reply is None:
            return found, None
        found.append(reply)


def test_a_session():
    printed = b"Welcome\r\nlogin: password: \r\nhello\r\nOXC> show\r\n1 -> 2\r\nOXC> \nOXC> "
    assert replies(with_login(), [printed]) == (
        ["Welcome\nlogin: ", "password: ", "\nhello", "show\n1 -> 2", ""],
        None,
    )


def test_a_reply_that_ends_with_a_known_line():
    assert replies(without_prompt(), [b"1 2\n3 4\nOK\nERR\n7"]) == (["1 2\n3 4\nOK", "ERR"], None)


def test_a_refused_login_is_an_error_at_once():
    found, error = replies(with_login(), [b"login: password: \r\nlogin incorrect\r\nlogin: "])
    assert found == ["login: ", "password: "]
    assert error == "the device refuses the log-in: 'login incorrect'"


def test_the_prompt_counts_at_the_beginning_of_a_line_only():
    found, _ = replies(TerminalDecoder((), End(prompt="> ")), [b"a > b\r\n> "])
    assert found == ["a > b"]


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n", b"\r"])
def test_any_line_end(line_end):
    assert replies(without_prompt(), [b"a" + line_end + b"OK" + line_end]) == (["a\nOK"], None)


def test_bytes_that_are_no_text():
    found, error = replies(without_prompt(), [b"OK\n\x1b[31mred\nOK\n"])
    assert found == ["OK"]
    assert error == "byte 0x1b after '' is no plain text"


@pytest.mark.parametrize("endless", [b"x" * (MAX_LINE_BYTES + 1), b"x\n" * 501, b"\n" * 1001])
def test_what_never_ends_is_bounded(endless, monkeypatch):
    monkeypatch.setattr(terminal, "MAX_REPLY_BYTES", 1000)
    decoder = without_prompt()
    _, error = replies(decoder, [endless])
    assert "that does not end" in error


PRINTED = ("login: ", "password: ", "OXC> ", "OK", "ERR", "login incorrect", "OXC", "> ", "a", " ")
WORDS = st.sampled_from([*map(str.encode, PRINTED), b"\r", b"\n", b"\r\n", b"\x00", b"\xff", b"\t"])


@given(st.lists(WORDS | st.binary(max_size=3), max_size=40).map(b"".join), st.data())
@pytest.mark.parametrize("make", [with_login, without_prompt])
def test_splitting_does_not_matter(make, data, chosen):
    cuts = sorted(chosen.draw(st.lists(st.integers(0, len(data)), max_size=8)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    whole = replies(make(), [data])
    assert replies(make(), pieces) == whole
    assert replies(make(), [bytes([byte]) for byte in data]) == whole


@pytest.mark.parametrize("size", [MAX_LINE_BYTES - 2, MAX_LINE_BYTES - 1, MAX_LINE_BYTES])
def test_splitting_does_not_matter_at_the_limit(size):
    data = b"x" * size + b"login: \n"
    whole = replies(with_login(), [data])
    assert replies(with_login(), [bytes([byte]) for byte in data]) == whole
    assert (whole[1] is None) == (size + len("login: ") <= MAX_LINE_BYTES)


def test_lines_to_the_device():
    assert encode_line("show", "\r") == b"show\r"
    for bad in ("a\nb", "ä", "\x1b"):
        with pytest.raises(TerminalError) as caught:
            encode_line(bad, "\r")
        assert bad not in str(caught.value)
