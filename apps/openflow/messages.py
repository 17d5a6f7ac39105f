"""What is read of OpenFlow messages, and how: by the package's parsers, or from their raw bytes."""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from apps.openflow import refusals
from apps.openflow.package import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    ofp_event,
    ofproto_parser,
    ofproto_v1_3,
    ofproto_v1_3_parser,
)
from apps.openflow.seam import MOST_PORTS, PortInfo, SwitchEvents, address_in_words
from drivers.codecs.openflow.messages import ONF_EXPERIMENTER, PORT_PASSES_NOT
from drivers.codecs.openflow.refusals import describe_refusal
from drivers.codecs.openflow.rules import NO_BUNDLES, ROLE_SLAVE, TAKEN_OVER
from hydra.failures import FailureKind

LOG = logging.getLogger("hydra.framework")
_NOT_MASTER = (
    (ofproto_v1_3.OFPET_BAD_REQUEST, ofproto_v1_3.OFPBRC_IS_SLAVE),
    (ofproto_v1_3.OFPET_ROLE_REQUEST_FAILED, ofproto_v1_3.OFPRRFC_STALE),
)
_NO_EXPERIMENTERS = (
    (ofproto_v1_3.OFPET_BAD_REQUEST, ofproto_v1_3.OFPBRC_BAD_EXPERIMENTER),
    (ofproto_v1_3.OFPET_BAD_REQUEST, ofproto_v1_3.OFPBRC_BAD_EXP_TYPE),
)
_RAW_KINDS = (
    ofproto_v1_3.OFPMP_FLOW,
    ofproto_v1_3.OFPMP_PORT_STATS,
    ofproto_v1_3.OFPMP_PORT_DESC,
    ofproto_v1_3.OFPMP_METER,
)
_PARSED_KINDS = (
    ofproto_v1_3.OFPT_ECHO_REQUEST,
    ofproto_v1_3.OFPT_ECHO_REPLY,
    ofproto_v1_3.OFPT_FEATURES_REPLY,
    ofproto_v1_3.OFPT_PORT_STATUS,
)
"""Messages that the package reads for its own handlers; others are handed on as bytes."""
_FIRST_KINDS = (
    ofproto_v1_3.OFPT_HELLO,
    ofproto_v1_3.OFPT_ECHO_REQUEST,
    ofproto_v1_3.OFPT_ECHO_REPLY,
    ofproto_v1_3.OFPT_FEATURES_REPLY,
)
"""Messages that are read while nobody knows which switch sends them."""
_ECHOES = (ofproto_v1_3.OFPT_ECHO_REQUEST, ofproto_v1_3.OFPT_ECHO_REPLY)
"""Messages that are read of a stranger."""
_HELLO_ELEMENT = struct.Struct("!HH")
_HEADER = struct.Struct("!BBHI")
_FEATURES_REQUEST = ofproto_v1_3.OFPT_FEATURES_REQUEST
_DATAPATH_ID = struct.Struct("!Q")
_MULTIPART_HEAD = struct.Struct("!HH")
_ERROR = struct.Struct("!HH")
_ROLE_REPLY = struct.Struct("!8xQ")
_ROLE_STATUS = struct.Struct("!IIIBxxxQ")
"""Experimenter, type, role, reason, generation, behind the header (ONF extension 191)."""
_ROLE_TAKEN = (ONF_EXPERIMENTER, 1911, ROLE_SLAVE, 0)
"""Another controller has become the switch's master, and this one its slave."""
_FLOW_REMOVED = struct.Struct("!8xQ2xB")
"""Cookie and reason, behind the header."""
_PACKET_IN_MATCH = struct.Struct("!H")
_PACKET_IN_MATCH_AT = 24
"""Header, buffer id, total length, reason, table and cookie come before the match."""


_MANY: Final = {
    ofproto_v1_3.OFPT_BARRIER_REPLY: _HEADER.size,
    ofproto_v1_3.OFPT_FLOW_REMOVED: _FLOW_REMOVED.size,
    ofproto_v1_3.OFPT_MULTIPART_REPLY: 16,
}
_NEVER: Final = (1 << 16, None)
_direct: dict[int, tuple[int, Any]] = {}
"""Readers of messages that come by the thousand, and the fewest bytes that they need: of switches
that are known, these are read past the package's ways."""


def _connection_of(datapath: Any) -> Any:
    """Its :class:`~apps.openflow.seam.SwitchConnection`.

    None before the handshake: then nothing was asked.
    """
    return getattr(datapath, "hydra_connection", None)


def whole_message(held: bytearray, at: int) -> bytes | None:
    """The message that begins at ``at``, or None while it is not there as a whole.

    Raises ValueError for one that is shorter than its header.
    """
    if len(held) - at < _HEADER.size:
        return None
    length = _HEADER.unpack_from(held, at)[2]
    if length < _HEADER.size:
        raise ValueError(f"a message of {length} bytes, its header included")
    return bytes(held[at : at + length]) if len(held) >= at + length else None


def read_message(datapath: Any, whole: bytes) -> bool:
    """Have one message read and handed on; False if its connection is to be heard no more."""
    if datapath.state == DEAD_DISPATCHER:
        return False
    version, kind, length, xid = _HEADER.unpack_from(whole)
    if kind not in _ECHOES and getattr(datapath, "hydra_ignored", False):
        return True
    shortest, parse = _direct.get(kind, _NEVER)
    if (
        version == ofproto_v1_3.OFP_VERSION
        and datapath.state == MAIN_DISPATCHER
        and shortest <= length <= len(whole)
    ):
        try:
            parse(datapath, version, kind, length, xid, whole)
        except Exception:
            LOG.exception("%s: a message of type %d is not handled", datapath.address[0], kind)
        return True
    message = ofproto_parser.msg(datapath, version, kind, length, xid, whole)
    if message:
        _hand_on(datapath, message)
    return True


def _hand_on(datapath: Any, message: Any) -> None:
    """Give a message to its handlers, as the package does."""
    brick, event = datapath.ofp_brick, ofp_event.ofp_msg_to_ev(message)
    brick.send_event_to_observers(event, datapath.state)
    state = datapath.state
    for handler in brick.get_handlers(event):
        if state in handler.callers[type(event)].dispatchers:
            handler(event)


def have_read(parsers: Mapping[int, Any], events: SwitchEvents) -> None:
    """Have messages of OpenFlow 1.3 read by ``parsers``, and of other versions greetings.

    A switch that does not speak 1.3 is asked for its datapath id in an earlier version, if it has
    one, and refused.

    Its own parsers know every kind of message, and an entry of length 0 in one of their lists is
    read for ever.
    """

    def greeting(datapath: Any, version: int, kind: int, length: int, xid: int, buf: Any) -> Any:
        if kind == ofproto_v1_3.OFPT_FEATURES_REPLY:
            _refuse_known(datapath, buf, events)
        if kind != ofproto_v1_3.OFPT_HELLO:
            return None
        elements, at = [], ofproto_v1_3.OFP_HELLO_HEADER_SIZE
        while at < length:
            element, size = _HELLO_ELEMENT.unpack_from(buf, at)
            if size < _HELLO_ELEMENT.size:
                raise ValueError(f"an element of {size} bytes")
            if element == ofproto_v1_3.OFPHET_VERSIONBITMAP:
                elements.append(ofproto_v1_3_parser.OFPHelloElemVersionBitmap.parser(buf, at))
            at += (size + 7) // 8 * 8
        versions = {one for element in elements for one in element.versions} or {version}
        if not _speaks_ours(version, elements, versions):
            _refuse(datapath, versions, events)
            return None
        hello = ofproto_v1_3_parser.OFPHello(datapath, elements)
        hello.set_headers(version, kind, length, xid)
        return hello

    def message(datapath: Any, version: int, kind: int, length: int, xid: int, buf: Any) -> Any:
        if kind == ofproto_v1_3.OFPT_HELLO:
            return greeting(datapath, version, kind, length, xid, buf)
        if datapath.id is None and kind not in _FIRST_KINDS:
            return None
        if len(getattr(datapath, "ports", ())) > MOST_PORTS:
            datapath.set_state(DEAD_DISPATCHER)
            raise ValueError(f"more than {MOST_PORTS} ports")
        return parsers[kind](datapath, version, kind, length, xid, buf)

    versions = ofproto_parser._MSG_PARSERS
    versions.update(dict.fromkeys({*versions, *refusals.VERSIONS}, greeting))
    versions[ofproto_v1_3.OFP_VERSION] = message


def _speaks_ours(version: int, elements: Sequence[Any], versions: Collection[int]) -> bool:
    """True if a greeting leads to OpenFlow 1.3: without a list, all versions up to one are spoken
    (OpenFlow 1.3.5, 6.3.1).
    """
    ours = ofproto_v1_3.OFP_VERSION
    return ours in versions if elements else version >= ours


def _refuse(datapath: Any, versions: Collection[int], events: SwitchEvents) -> None:
    """Refuse a switch that does not speak 1.3; where it can be asked, once its id is known."""
    why = refusals.of_versions(versions)
    earlier = [one for one in versions if one < ofproto_v1_3.OFP_VERSION]
    if earlier and getattr(datapath, "hydra_refused_for", None) is None:
        datapath.hydra_refused_for = why
        datapath.send(_HEADER.pack(max(earlier), _FEATURES_REQUEST, _HEADER.size, 0))
        return
    events.switch_refused(None, address_in_words(datapath.address), why)
    _end_refused(datapath, max(versions), why)


def _refuse_known(datapath: Any, buf: Any, events: SwitchEvents) -> None:
    """Refuse a switch that has told its datapath id, which stands first in each version."""
    why = getattr(datapath, "hydra_refused_for", None)
    if why is None:
        return
    (identity,) = _DATAPATH_ID.unpack_from(buf, _HEADER.size)
    events.switch_refused(identity, address_in_words(datapath.address), why)
    _end_refused(datapath, buf[0], why)


def _end_refused(datapath: Any, version: int, why: str) -> None:
    """Tell the switch, whose log may be all that its owner sees, and close the connection."""
    datapath.hydra_refused_for = None
    words = why.encode("ascii")
    incompatible = _ERROR.pack(ofproto_v1_3.OFPET_HELLO_FAILED, ofproto_v1_3.OFPHFC_INCOMPATIBLE)
    size = _HEADER.size + len(incompatible) + len(words)
    header = _HEADER.pack(version, ofproto_v1_3.OFPT_ERROR, size, 0)
    datapath.send(header + incompatible + words, close_socket=True)


def parsers(events: SwitchEvents) -> dict[int, Any]:
    """Readers of each kind of message; one that returns None hands it to nobody else."""
    known = ofproto_v1_3_parser._MSG_PARSERS

    def unread(*_message: Any) -> None:
        """Not asked for; of replies about bundles, the barrier after them says what became."""

    statistics, replies = _of_statistics(events), _of_replies(events)
    _direct.clear()
    for kind, shortest in _MANY.items():
        _direct[kind] = shortest, (statistics | replies)[kind]
    return {
        **dict.fromkeys(known, unread),
        **{kind: known[kind] for kind in _PARSED_KINDS},
        **statistics,
        **_of_packets(events),
        **replies,
    }


def _of_statistics(events: SwitchEvents) -> dict[int, Any]:
    """Take statistics, and how ports are, from the raw bytes, past the package's objects.

    Ryu builds 31,000 flow statistics a second; read as arrays they cost a fraction of that.
    """
    package_parser = ofproto_v1_3_parser._MSG_PARSERS[ofproto_v1_3.OFPT_MULTIPART_REPLY]

    def parse(
        datapath: Any,
        version: int,
        msg_type: int,
        msg_len: int,
        xid: int,
        buf: bytearray,
    ) -> Any:
        kind, flags = _MULTIPART_HEAD.unpack_from(buf, 8)
        if kind == ofproto_v1_3.OFPMP_PORT_DESC and datapath.state != MAIN_DISPATCHER:
            return package_parser(datapath, version, msg_type, msg_len, xid, buf)
        if kind in _RAW_KINDS:
            more = bool(flags & ofproto_v1_3.OFPMPF_REPLY_MORE)
            connection = _connection_of(datapath)
            events.statistics_replied(connection, xid, bytes(buf[16:msg_len]), more=more)
        return None

    return {ofproto_v1_3.OFPT_MULTIPART_REPLY: parse}


def _of_packets(events: SwitchEvents) -> dict[int, Any]:
    """Take frames from raw packet-ins, past the package's object: probes are many."""

    def parse(
        datapath: Any,
        _version: int,
        _msg_type: int,
        msg_len: int,
        _xid: int,
        buf: bytearray,
    ) -> None:
        (match_length,) = _PACKET_IN_MATCH.unpack_from(buf, _PACKET_IN_MATCH_AT + 2)
        frame_at = _PACKET_IN_MATCH_AT + (match_length + 7) // 8 * 8 + 2
        connection = _connection_of(datapath)
        events.packet_received(datapath.id, connection, bytes(buf[frame_at:msg_len]))

    return {ofproto_v1_3.OFPT_PACKET_IN: parse}


def _of_replies(events: SwitchEvents) -> dict[int, Any]:
    """Take barriers, errors and roles from the raw bytes, past the queue of events.

    Ryu's holds 128, and whoever waits to put one there looks through all who wait: as many steps as
    the square of the switches that answer at once.
    """

    def barrier(datapath: Any, _version: int, _type: int, _len: int, xid: int, _buf: Any) -> None:
        events.barrier_replied(_connection_of(datapath), xid)

    def role(datapath: Any, _version: int, _type: int, _len: int, xid: int, buf: Any) -> None:
        (generation,) = _ROLE_REPLY.unpack_from(buf, 8)
        events.role_replied(_connection_of(datapath), xid, generation)

    def error(datapath: Any, _version: int, _type: int, length: int, xid: int, buf: Any) -> None:
        connection = _connection_of(datapath)
        if connection is None:
            return  # before the handshake, nothing was asked
        of_type, code = _ERROR.unpack_from(buf, 8)
        kind = FailureKind.REFUSED
        text = describe_refusal(of_type, code, bytes(buf[12:length]))
        if (of_type, code) in _NOT_MASTER:
            kind, text = FailureKind.TAKEN_OVER, TAKEN_OVER
        elif (of_type, code) in _NO_EXPERIMENTERS:
            kind, text = FailureKind.NO_BUNDLES, NO_BUNDLES
        events.error_replied(connection, xid, kind, text)

    def status(datapath: Any, _version: int, _type: int, length: int, _xid: int, buf: Any) -> None:
        connection = _connection_of(datapath)
        if connection is None or length < _HEADER.size + _ROLE_STATUS.size:
            return
        *told, generation = _ROLE_STATUS.unpack_from(buf, _HEADER.size)
        if tuple(told) == _ROLE_TAKEN:
            events.role_taken(datapath.id, connection, generation)

    def removed(datapath: Any, _version: int, _type: int, _len: int, _xid: int, buf: Any) -> None:
        cookie, reason = _FLOW_REMOVED.unpack_from(buf)
        if reason == ofproto_v1_3.OFPRR_HARD_TIMEOUT:
            events.rule_ended(datapath.id, _connection_of(datapath), cookie)

    return {
        ofproto_v1_3.OFPT_FLOW_REMOVED: removed,
        ofproto_v1_3.OFPT_BARRIER_REPLY: barrier,
        ofproto_v1_3.OFPT_ROLE_REPLY: role,
        ofproto_v1_3.OFPT_ERROR: error,
        ofproto_v1_3.OFPT_EXPERIMENTER: status,
    }


def port_info(port: Any) -> PortInfo:
    down = bool(port.config & PORT_PASSES_NOT) or bool(port.state & ofproto_v1_3.OFPPS_LINK_DOWN)
    return PortInfo(port.port_no, port.name.decode("ascii", "replace"), not down)
