"""Server-sent events by the WHATWG's HTML standard, line by line, in any pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hydra_hybrid_network_client.streams import EventDecoder, ServerSentEvent

# Each rule of "9.2.6 Interpreting an event stream" once.
STREAM = (
    "\ufeff: a comment\n"
    "event: up\ndata: first\ndata: second\n\n"
    "id: 7\r\n\r\n"
    "data:without a blank\rdata:  with two\r\r"
    "id: 8\0\ndata\n\n"
    "retry: 10\nunknown: field\n\n"
    "id\ndata: \u2028 is no end of a line\n\n"
    "id: 9\ndata: cut off"
)
EVENTS = [
    ServerSentEvent("up", "first\nsecond", ""),
    ServerSentEvent("message", "without a blank\n with two", "7"),
    ServerSentEvent("message", "", "7"),
    ServerSentEvent("message", "\u2028 is no end of a line", ""),
]


@given(st.lists(st.integers(0, len(STREAM.encode()))))
def test_events_are_the_same_however_the_stream_is_cut(cuts):
    sent = STREAM.encode()
    edges = [0, *sorted(cuts), len(sent)]
    decoder = EventDecoder()
    pieces = [sent[a:b] for a, b in pairwise(edges)]
    assert [event for piece in pieces for event in decoder.feed(piece)] == EVENTS
    assert decoder.last_id == "", "the event with id 9 is sent again"


def test_an_id_without_data_moves_the_place_along():
    decoder = EventDecoder()
    assert list(decoder.feed(b"id: 7\n\n: alive\n\n")) == []
    assert decoder.last_id == "7"
