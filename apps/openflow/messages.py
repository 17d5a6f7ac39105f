"""Reading of OpenFlow messages: by the package's parsers, or from raw bytes.

The package builds 31,000 flow statistics a second; reading statistics as arrays takes a fraction of
the time. So the package gets only the messages for its handshake and its handlers.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from apps.openflow import refusals
from apps.openflow.interface import PortInfo, SwitchEvents, address_in_words
from apps.openflow.limits import MOST_PORTS
from apps.openflow.package import (
    handler,
    ofp_event,
    ofproto_parser,
    ofproto_v1_3,
    ofproto_v1_3_parser,
)
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
_RAW_STATISTICS = (
    ofproto_v1_3.OFPMP_FLOW,
    ofproto_v1_3.OFPMP_PORT_STATS,
    ofproto_v1_3.OFPMP_PORT_DESC,
    ofproto_v1_3.OFPMP_METER,
    ofproto_v1_3.OFPMP_METER_CONFIG,
)
_ECHOES = (ofproto_v1_3.OFPT_ECHO_REQUEST, ofproto_v1_3.OFPT_ECHO_REPLY)
"""Messages read from a stranger."""
_FIRST_KINDS = (*_ECHOES, ofproto_v1_3.OFPT_FEATURES_REPLY)
"""Messages read after a greeting, while the sending switch is unknown."""
_PARSED_KINDS = (*_FIRST_KINDS, ofproto_v1_3.OFPT_PORT_STATUS)
"""Messages read by the package, for the package's own handlers."""
_HELLO_ELEMENT = struct.Struct("!HH")
_HEADER = struct.Struct("!BBHI")
_DATAPATH_ID = struct.Struct("!Q")
_MULTIPART_HEAD = struct.Struct("!HH")
_MULTIPART_AT = 16
_ERROR = struct.Struct("!HH")
_ROLE_REPLY = struct.Struct("!8xQ")
_EXPERIMENT = struct.Struct("!II")
"""Experimenter and type, behind the header."""
_ROLE_STATUS_OF = (ONF_EXPERIMENTER, 1911)
_ROLE_STATUS = struct.Struct("!8xIBxxxQ")
"""Role, reason, generation, behind the header (ONF extension 191)."""
_ROLE_TAKEN = (ROLE_SLAVE, 0)
"""Another controller has become the switch's master, and this controller a slave."""
_FLOW_REMOVED = struct.Struct("!8xQ2xB")
"""Cookie and reason, behind the header."""
_PACKET_IN_MATCH = struct.Struct("!2xH")
_PACKET_IN_MATCH_AT = 24
"""Header, buffer id, total length, reason, table and cookie come before the match."""
Read = Callable[[Any, int, bytes], None]
"""Read a message of a datapath, given the transaction id."""


class Reader:
    """Reads messages of OpenFlow 1.3, and greetings of other versions."""

    def __init__(self, events: SwitchEvents) -> None:
        self._events = events
        self._raw: Final[dict[int, tuple[int, Read]]] = {
            ofproto_v1_3.OFPT_BARRIER_REPLY: (_HEADER.size, self._barrier),
            ofproto_v1_3.OFPT_ERROR: (_HEADER.size + _ERROR.size, self._error),
            ofproto_v1_3.OFPT_EXPERIMENTER: (_HEADER.size + _EXPERIMENT.size, self._experimenter),
            ofproto_v1_3.OFPT_FLOW_REMOVED: (_HEADER.size + _FLOW_REMOVED.size, self._removed),
            ofproto_v1_3.OFPT_MULTIPART_REPLY: (_MULTIPART_AT, self._statistics),
            ofproto_v1_3.OFPT_PACKET_IN: (
                _PACKET_IN_MATCH_AT + _PACKET_IN_MATCH.size,
                self._packet,
            ),
            ofproto_v1_3.OFPT_ROLE_REPLY: (_HEADER.size + _ROLE_REPLY.size, self._role),
        }
        """(fewest bytes, reader) of each kind of message that the package does not read."""

    def read(self, datapath: Any, whole: bytes) -> bool:
        """Read one message and hand it on; False if the connection is to be read no more.

        Raises any exception of the package about a message that no switch sends.
        """
        if datapath.state == handler.DEAD_DISPATCHER:
            return False
        version, kind, _, xid = _HEADER.unpack_from(whole)
        if datapath.is_stranger and kind not in _ECHOES:
            return True
        if kind == ofproto_v1_3.OFPT_HELLO or version != ofproto_v1_3.OFP_VERSION:
            self._read_of_any_version(datapath, version, kind, whole)
        elif kind in _PARSED_KINDS:
            if len(getattr(datapath, "ports", ())) > MOST_PORTS:
                raise ValueError(f"more than {MOST_PORTS} ports")
            if datapath.id is not None or kind in _FIRST_KINDS:
                _have_parsed(datapath, kind, xid, whole)
        elif datapath.id is not None and kind in self._raw:
            self._read_raw(datapath, kind, xid, whole)
        # Other messages were not requested; for replies about bundles, the barrier shows the
        # result.
        return True

    def _read_raw(self, datapath: Any, kind: int, xid: int, whole: bytes) -> None:
        shortest, read = self._raw[kind]
        if len(whole) < shortest:
            LOG.warning("a message of type %d from a switch is too short", kind)
            return
        try:
            read(datapath, xid, whole)
        except Exception:  # concerns this message only: the connection goes on
            LOG.exception("%s: a message of type %d is not handled", datapath.address[0], kind)

    def _barrier(self, datapath: Any, xid: int, _whole: bytes) -> None:
        self._events.barrier_replied(datapath.connection, xid)

    def _role(self, datapath: Any, xid: int, whole: bytes) -> None:
        (generation,) = _ROLE_REPLY.unpack_from(whole, _HEADER.size)
        self._events.role_replied(datapath.connection, xid, generation)

    def _experimenter(self, datapath: Any, _xid: int, whole: bytes) -> None:
        if _EXPERIMENT.unpack_from(whole, _HEADER.size) != _ROLE_STATUS_OF:
            return  # such as the reply about a bundle
        role, reason, generation = _ROLE_STATUS.unpack_from(whole, _HEADER.size)
        if (role, reason) == _ROLE_TAKEN:
            self._events.role_taken(datapath.id, datapath.connection, generation)

    def _error(self, datapath: Any, xid: int, whole: bytes) -> None:
        of_type, code = _ERROR.unpack_from(whole, _HEADER.size)
        kind = FailureKind.REFUSED
        text = describe_refusal(of_type, code, whole[_HEADER.size + _ERROR.size :])
        if (of_type, code) in _NOT_MASTER:
            kind, text = FailureKind.TAKEN_OVER, TAKEN_OVER
        elif (of_type, code) in _NO_EXPERIMENTERS:
            kind, text = FailureKind.NO_BUNDLES, NO_BUNDLES
        self._events.error_replied(datapath.connection, xid, kind, text)

    def _removed(self, datapath: Any, _xid: int, whole: bytes) -> None:
        cookie, reason = _FLOW_REMOVED.unpack_from(whole)
        if reason == ofproto_v1_3.OFPRR_HARD_TIMEOUT:
            self._events.rule_ended(datapath.id, datapath.connection, cookie)

    def _statistics(self, datapath: Any, xid: int, whole: bytes) -> None:
        kind, flags = _MULTIPART_HEAD.unpack_from(whole, _HEADER.size)
        if kind == ofproto_v1_3.OFPMP_PORT_DESC and datapath.state != handler.MAIN_DISPATCHER:
            _have_parsed(datapath, ofproto_v1_3.OFPT_MULTIPART_REPLY, xid, whole)
        elif kind in _RAW_STATISTICS:
            more = bool(flags & ofproto_v1_3.OFPMPF_REPLY_MORE)
            body = whole[_MULTIPART_AT:]
            self._events.statistics_replied(datapath.connection, xid, body, more=more)

    def _packet(self, datapath: Any, _xid: int, whole: bytes) -> None:
        (match_length,) = _PACKET_IN_MATCH.unpack_from(whole, _PACKET_IN_MATCH_AT)
        frame_at = _PACKET_IN_MATCH_AT + (match_length + 7) // 8 * 8 + 2
        self._events.packet_received(datapath.id, datapath.connection, whole[frame_at:])

    def _read_of_any_version(self, datapath: Any, version: int, kind: int, whole: bytes) -> None:
        """Read a greeting, or the datapath id of a switch that speaks earlier versions only.

        Raises ValueError and struct.error.
        """
        if version not in refusals.VERSIONS:
            raise ValueError(f"version {version:#x} of OpenFlow")
        if kind == ofproto_v1_3.OFPT_FEATURES_REPLY:
            self._refuse_known(datapath, whole)
        if kind != ofproto_v1_3.OFPT_HELLO:
            return
        elements = _elements(whole)
        versions = {version for element in elements for version in element.versions} or {version}
        if not _speaks_ours(version, elements, versions):
            self._refuse(datapath, versions)
            return
        hello = ofproto_v1_3_parser.OFPHello(datapath, elements)
        hello.set_headers(version, kind, len(whole), 0)
        _hand_on(datapath, hello)

    def _refuse(self, datapath: Any, versions: Collection[int]) -> None:
        """Refuse a switch that does not speak 1.3; if possible, ask for the datapath id first."""
        why = refusals.of_versions(versions)
        earlier = [version for version in versions if version < ofproto_v1_3.OFP_VERSION]
        if earlier and datapath.refused_for is None:
            datapath.refused_for = why
            request = ofproto_v1_3.OFPT_FEATURES_REQUEST
            datapath.send(_HEADER.pack(max(earlier), request, _HEADER.size, 0))
            return
        self._events.switch_refused(None, address_in_words(datapath.address), why)
        _end_refused(datapath, max(versions), why)

    def _refuse_known(self, datapath: Any, whole: bytes) -> None:
        """Refuse a switch that has sent its datapath id, the first field in each version."""
        why = datapath.refused_for
        if why is None:
            return
        (identity,) = _DATAPATH_ID.unpack_from(whole, _HEADER.size)
        self._events.switch_refused(identity, address_in_words(datapath.address), why)
        _end_refused(datapath, whole[0], why)


def _have_parsed(datapath: Any, kind: int, xid: int, whole: bytes) -> None:
    """Parse a message by the package, for the package's handlers; the package logs unreadable
    messages.
    """
    version = ofproto_v1_3.OFP_VERSION
    message = ofproto_parser.msg(datapath, version, kind, len(whole), xid, whole)
    if message:
        _hand_on(datapath, message)


def _hand_on(datapath: Any, message: Any) -> None:
    """Give a message to its handlers, as the package does."""
    brick, event = datapath.ofp_brick, ofp_event.ofp_msg_to_ev(message)
    brick.send_event_to_observers(event, datapath.state)
    state = datapath.state
    for observer in brick.get_handlers(event):
        if state in observer.callers[type(event)].dispatchers:
            observer(event)


def _elements(greeting: bytes) -> list[Any]:
    """The version bitmaps of a greeting; the package loops for ever on an element of length 0."""
    elements, at = [], ofproto_v1_3.OFP_HELLO_HEADER_SIZE
    while at < len(greeting):
        element, size = _HELLO_ELEMENT.unpack_from(greeting, at)
        if size < _HELLO_ELEMENT.size:
            raise ValueError(f"an element of {size} bytes")
        if element == ofproto_v1_3.OFPHET_VERSIONBITMAP:
            elements.append(ofproto_v1_3_parser.OFPHelloElemVersionBitmap.parser(greeting, at))
        at += (size + 7) // 8 * 8
    return elements


def _speaks_ours(version: int, elements: Sequence[Any], versions: Collection[int]) -> bool:
    """True if a greeting leads to OpenFlow 1.3.

    Without a list, a switch speaks all versions up to the greeting's (OpenFlow 1.3.5, 6.3.1).
    """
    ours = ofproto_v1_3.OFP_VERSION
    return ours in versions if elements else version >= ours


def _end_refused(datapath: Any, version: int, why: str) -> None:
    """Send the switch the reason, perhaps visible only in the switch's log, and close the
    connection.
    """
    datapath.refused_for = None
    words = why.encode("ascii")
    incompatible = _ERROR.pack(ofproto_v1_3.OFPET_HELLO_FAILED, ofproto_v1_3.OFPHFC_INCOMPATIBLE)
    size = _HEADER.size + len(incompatible) + len(words)
    header = _HEADER.pack(version, ofproto_v1_3.OFPT_ERROR, size, 0)
    datapath.send(header + incompatible + words, close_socket=True)


def port_info(port: Any) -> PortInfo:
    down = bool(port.config & PORT_PASSES_NOT) or bool(port.state & ofproto_v1_3.OFPPS_LINK_DOWN)
    return PortInfo(port.port_no, port.name.decode("ascii", "replace"), not down)
