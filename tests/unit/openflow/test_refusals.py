"""Reasons for refused connections, and the frequency of their reports."""

import ssl

import pytest

from apps.openflow import refusals
from apps.openflow.refusals import ForeignProtocol, Refusal, Refusals

WHY = refusals.of_versions({1})


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


def test_words():
    assert refusals.of_versions({1, 6}).startswith("the switch speaks OpenFlow 1.0, 1.5, and not")
    assert "version 0x9" in refusals.of_versions({9})
    assert "tcp: instead of ssl:" in refusals.of_mismatch(ForeignProtocol(0x16))
    assert refusals.of_mismatch(ForeignProtocol(ord("G"))) is None
    assert refusals.of_mismatch(ConnectionResetError(104, "reset")) is None


def handshake_with(first_bytes):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(first_bytes)
    try:
        server.do_handshake()
    except ssl.SSLError as error:
        return error
    raise AssertionError("a handshake")


def test_openflow_without_tls_on_the_port_with():
    hello = b"\x04\x00\x00\x10\x00\x00\x00\x01\x00\x01\x00\x08\x00\x00\x00\x10"
    for greeting in (hello, hello[:8] + bytes(8), b"GET / HTTP/1.0\r\n\r\n"):
        assert "ssl: instead of tcp:" in refusals.of_mismatch(handshake_with(greeting))


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", True),
        ("CERTIFICATE_VERIFY_FAILED", True),
        ("TLSV1_ALERT_UNKNOWN_CA", True),
        ("UNEXPECTED_EOF_WHILE_READING", False),
        (None, False),
    ],
)
def test_certificates_that_do_not_fit(reason, told):
    error = ssl.SSLError()
    error.reason = reason
    words = refusals.of_mismatch(error)
    assert (words is not None) == told
    assert words is None or f"do not fit ({reason}): give both" in words


def test_each_switch_is_logged_by_its_name_once_a_minute(caplog):
    clock = Clock()
    names = {1: "v1", 2: "v2"}
    kept_out = Refusals(names.get, clock)
    for port in range(40_000, 40_020):
        kept_out.note(1, f"10.0.0.1:{port}", WHY)
        kept_out.note(2, f"10.0.0.2:{port}", WHY)
        kept_out.note(None, f"[2001:db8::3]:{port}", WHY)
        clock.now_s += 2
    assert [one.split(" is not")[0] for one in caplog.messages] == [
        "v1 (10.0.0.1, datapath id 0x0000000000000001)",
        "v2 (10.0.0.2, datapath id 0x0000000000000002)",
        "[2001:db8::3] ([2001:db8::3])",
    ]
    assert all("protocols=OpenFlow13" in one for one in caplog.messages)
    clock.now_s += 30
    kept_out.note(1, "10.0.0.1:5", WHY)
    assert len(caplog.messages) == 4
    assert kept_out.now() == [Refusal("[2001:db8::3]", WHY), Refusal("v1", WHY), Refusal("v2", WHY)]
    clock.now_s += 80
    assert kept_out.now() == [Refusal("v1", WHY)]


def test_a_switch_that_is_let_in_is_kept_out_no_more():
    kept_out = Refusals({1: "v1"}.get)
    kept_out.note(1, "10.0.0.1:5", WHY)
    kept_out.note(None, "10.0.0.1:6", WHY)
    kept_out.forget(1, "10.0.0.1:7")
    assert kept_out.now() == []


def test_a_neighbour_with_many_addresses_fills_no_memory():
    kept_out = Refusals()
    for number in range(10_000):
        kept_out.note(number, f"10.{number >> 8}.{number & 255}.1:5", WHY)
    assert len(kept_out.now()) == 100
