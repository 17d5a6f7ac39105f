"""The seam to Ryu and eventlet: the only module that imports either.

Ryu 4.34 asks for two things before it runs on a present-day Python (docs/decisions/0002):
``eventlet.wsgi.ALREADY_HANDLED``, which eventlet dropped in 0.30.3, and that its launcher does not
monkey-patch the process, since device drivers, REST and the journal run in native threads with
native sockets. This module provides both. Ryu's own sockets are green explicitly.
"""

from __future__ import annotations

import contextlib
import faulthandler
import http.server
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

with warnings.catch_warnings():
    # eventlet announces on import that it is in maintenance, and Ryu still uses distutils and cgi;
    # docs/decisions/0002 knows.
    warnings.simplefilter("ignore")
    import eventlet.wsgi

    # It leaves a green copy of http.server in its package, for everybody from now on.
    http.server = sys.modules["http.server"]
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()

    from eventlet.event import Event
    from eventlet.green import ssl as green_ssl
    from ryu import cfg
    from ryu.base import app_manager
    from ryu.controller import controller as ryu_controller
    from ryu.controller import ofp_event
    from ryu.controller.handler import (
        CONFIG_DISPATCHER,
        DEAD_DISPATCHER,
        MAIN_DISPATCHER,
        set_ev_cls,
    )
    from ryu.lib import hub
    from ryu.ofproto import ofproto_parser, ofproto_v1_3, ofproto_v1_3_parser

from apps.openflow import _lines
from apps.process.doors import RETRY_S, Door, Sparing
from drivers.codecs.openflow.rules import NO_BUNDLES, TAKEN_OVER
from hydra.errors import HydraError
from hydra.failures import FailureKind

LOG = logging.getLogger("hydra.framework")
LOG.addFilter(Sparing(lambda record: "switch" in str(record.msg)))
HANDSHAKE_S = 10.0
_HANDSHAKES = 64
"""Handshakes at a time: of thousands at once, none would be done within HANDSHAKE_S."""
_HANDSHAKES_LOOK_S = 0.02
_BACKLOG = 4096
"""Connections that the system holds until they are accepted, as many as Linux allows by default. It
lets others try again after ever longer waits, up to minutes."""
ECHO_S = 2.0
"""How long a connection may take to answer an echo when another one claims to be its switch."""
_SOCKET_S = 60.0
"""How long a switch may read nothing while more is sent to it than its connection holds. Each
connection on which nothing comes in is looked at as often."""
_ECHO_LOOKS = 20
_ECHO_EVERY_S = 15.0
_UNANSWERED_ECHOES = 4
"""A switch that leaves more unanswered, 15 s apart, is gone."""
STOP_S = 80.0
"""From SIGINT or SIGTERM on: then the process ends anyhow, with the traceback of each thread. The
unit of systemd gives it 90."""
_STOPPING_LOOK_S = 0.01


class _Words(Sparing):
    """Leaves tracebacks out, which lead to where Ryu reads messages, whatever was wrong."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return super().filter(record)


for _name in ("ryu.ofproto.ofproto_parser", "ryu.controller.controller", "OFPHandler"):
    logging.getLogger(_name).addFilter(_Words())


def _no_patch(**_modules: bool) -> None:
    """Stands in for ``hub.patch``: sockets, threads and select stay the system's own."""


hub.patch = _no_patch  # before ryu.cmd.manager is imported, which calls it


def run_manager(arguments: list[str]) -> None:
    """Ryu's own ``ryu-manager`` main, in a prepared process; SIGINT and SIGTERM end it.

    Raises KeyboardInterrupt if that happens before Ryu's main loop runs, and the HydraError that
    was given to :func:`give_up`; also HydraError if Ryu's listener ends by itself.
    """
    from ryu.cmd import manager  # parses flags at import

    main = eventlet.getcurrent()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        """Only in the main green thread: others swallow it, and the hub would lose what it does."""
        impatient = bool(signals)
        signals.append(number)
        if not impatient:
            # A thread of C: it needs neither the hub nor the interpreter's lock.
            faulthandler.dump_traceback_later(STOP_S, exit=True)
        eventlet.hubs.get_hub().schedule_call_global(0, leave if impatient else end)
        if eventlet.getcurrent() is main:
            raise KeyboardInterrupt  # swallowed if it meets a destructor: then the hub sees to it

    def end() -> None:
        hub.spawn(wind_up)

    def wind_up() -> None:
        """Ryu closes apps when it serves no switch any more, and a change under way needs them."""
        for app in list(app_manager.AppManager.get_instance().applications.values()):
            if isinstance(app, OpenFlowApp):
                app.wind_up()
        eventlet.hubs.get_hub().schedule_call_global(0, leave)

    def leave() -> None:
        main.throw(KeyboardInterrupt)

    signals: list[int] = []
    reader, writer = os.pipe()
    for pipe in (reader, writer):
        os.set_blocking(pipe, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    eventlet.spawn(_keep_empty, reader)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    manager.main(args=arguments, prog="ryu-manager")
    if _given_up:
        raise _given_up[0]
    if not signals:
        raise HydraError(
            "OpenFlow's listener has ended by itself, the log says why: start it again"
        )


_given_up: list[HydraError] = []


def give_up(error: HydraError) -> None:
    """End the process as Ctrl-C does, and have it say why; callable from any thread."""
    _given_up.append(error)
    os.kill(os.getpid(), signal.SIGTERM)


def _keep_empty(pipe: int) -> None:
    """Socket that a signal writes to: it ends the hub's wait, so that it looks at its timers."""
    while True:
        eventlet.hubs.trampoline(pipe, read=True)
        os.read(pipe, 4096)


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A switch port as the switch describes it."""

    number: int
    name: str
    up: bool
    """Neither administratively down nor without carrier."""


class SwitchConnection(Protocol):
    """OpenFlow connection; used in the hub's thread only."""

    @property
    def address(self) -> str:
        """Address of the other end, with its port."""

    def send(self, message: bytes) -> None:
        """Messages go out in order; a switch that does not read them keeps nobody waiting."""

    def ask(self, tell: Callable[[bool], None]) -> None:
        """Send an echo request; ``tell``, within ECHO_S and a little, whether it was answered."""

    def close(self) -> None: ...


class SwitchEvents(Protocol):
    """Receiver of the OpenFlow side's reports; called in the hub's thread, must not block."""

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None: ...

    def switch_disconnected(self, datapath: int, connection: SwitchConnection) -> None: ...

    def port_changed(
        self, datapath: int, connection: SwitchConnection, port: PortInfo, *, deleted: bool
    ) -> None: ...

    def barrier_replied(self, connection: SwitchConnection, xid: int) -> None: ...

    def error_replied(
        self, connection: SwitchConnection, xid: int, kind: FailureKind, error: str
    ) -> None: ...

    def statistics_replied(
        self, connection: SwitchConnection, xid: int, body: bytes, *, more: bool
    ) -> None: ...

    def role_replied(self, connection: SwitchConnection, xid: int, generation: int) -> None: ...

    def rule_ended(self, datapath: int, connection: SwitchConnection, cookie: int) -> None:
        """A rule that was to tell its end has ended by itself."""

    def packet_received(
        self, datapath: int, connection: SwitchConnection, frame: bytes
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenFlowTls:
    """PEM files with which the controller and its switches make themselves known to each other."""

    certificate: str
    key: str
    authority: str
    """Authority of the switches' certificates: without one of its, nobody is let in."""


class Application(Protocol):
    """Launched controller, seen from Ryu."""

    @property
    def openflow_address(self) -> tuple[str, int]: ...

    @property
    def openflow_connections(self) -> int:
        """Largest number of connections at a time."""

    @property
    def openflow_tls(self) -> OpenFlowTls | None:
        """None: OpenFlow is not encrypted, and whoever reaches the address may be a switch."""

    @property
    def events(self) -> SwitchEvents: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def _context(tls: OpenFlowTls) -> Any:
    context = green_ssl.SSLContext(green_ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = green_ssl.TLSVersion.TLSv1_2
    context.verify_mode = green_ssl.CERT_REQUIRED
    context.load_cert_chain(tls.certificate, tls.key)
    context.load_verify_locations(tls.authority)
    return context


class _SwitchServer:
    """Stands in for Ryu's ``StreamServer``.

    Ryu's own ends with the process's descriptors, keeps whoever says nothing, reads its TLS
    settings for the first connection only, and wraps sockets that block.
    """

    def __init__(
        self,
        door: Door,
        context: Any,
        address: tuple[str, int],
        handle: Callable[[Any, Any], None],
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.server = eventlet.listen(address, family, _BACKLOG, reuse_port=False)
        self._door = door
        self._context = context
        self._handle = handle
        self._arrived = hub.Queue()
        self._unsettled: dict[Any, Any] = {}
        """Connections whose handshake has begun and is not completed, by their other end."""

    def serve_forever(self) -> None:
        hub.spawn(self._let_in)
        while True:
            try:
                connection, peer = self.server.accept()
            except OSError as error:
                self._door.failed(error)
                hub.sleep(RETRY_S)
                continue
            if self._door.enter(peer[0]):
                self._arrived.put((connection, peer))
            else:
                connection.close()

    def _let_in(self) -> None:
        """Serve those who arrive, each once the hub is done with most of those before.

        Who says nothing gives the hub nothing to do: others do not wait for them.
        """
        while True:
            connection, peer = self._arrived.get()
            self._unsettled[peer] = connection
            hub.spawn(self._serve, connection, peer)
            busy = True
            while busy and len(self._unsettled) >= _HANDSHAKES:
                before_s = time.thread_time()
                hub.sleep(_HANDSHAKES_LOOK_S)
                busy = time.thread_time() - before_s > _HANDSHAKES_LOOK_S / 4

    def settle(self, peer: Any) -> None:
        """Note that a switch has completed its handshake."""
        self._unsettled.pop(peer, None)

    def _serve(self, connection: Any, peer: Any) -> None:
        timer = hub.spawn_after(HANDSHAKE_S, self._look, peer)
        try:
            if self._context is not None:
                with eventlet.Timeout(HANDSHAKE_S):
                    connection = self._context.wrap_socket(connection, server_side=True)
                self._unsettled[peer] = connection
            self._handle(connection, peer)
        except (OSError, eventlet.Timeout) as error:
            LOG.warning("%s is not let in as a switch: %s", peer[0], error)
        except Exception as error:  # whatever Ryu raises at what can't be an OpenFlow message
            LOG.warning("%s is cut off: no switch sends that: %r", peer[0], error)
        finally:
            hub.kill(timer)
            connection.close()
            self._unsettled.pop(peer, None)
            self._door.leave(peer[0])

    def _look(self, peer: Any) -> None:
        connection = self._unsettled.get(peer)
        if connection is not None:
            LOG.warning("%s has not become a switch within %s s", peer[0], HANDSHAKE_S)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


Post = Callable[[Callable[[], None]], None]
"""Run a function in the hub's thread, soon; callable from any thread."""


class HubMailbox:
    """Carries functions from native threads into the hub; a pipe wakes it.

    It is woken once for all that are posted before it looks: each write of a byte would have the
    writer wait for the interpreter's lock again. Others have their turn after every few functions.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = False
        """True from a byte in the pipe until the hub begins to look at what waits."""
        self._closed = False

    def post(self, function: Callable[[], None]) -> None:
        self._waiting.append(function)
        if self._woken:
            return
        self._woken = True
        with contextlib.suppress(BlockingIOError, OSError):  # full: it will wake anyway
            os.write(self._writer, b"!")

    def run(self) -> None:
        """The hub's side: a green thread."""
        while not self._closed:
            hub_trampoline(self._reader)
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 65536)
            self._woken = False  # before it looks: what is posted from here on wakes it again
            done = 0
            while self._waiting:
                self._waiting.popleft()()
                done += 1
                if done % _IN_A_ROW == 0:
                    hub.sleep(0)

    def close(self) -> None:
        """End :meth:`run`, waking it."""
        self._closed = True
        self.post(lambda: None)


def hub_trampoline(descriptor: int) -> None:
    eventlet.hubs.trampoline(descriptor, read=True)


class _DatapathConnection:
    """A Ryu datapath as a :class:`SwitchConnection`."""

    __slots__ = ("_datapath", "_unanswered", "_waiting")

    def __init__(self, datapath: Any) -> None:
        self._datapath = datapath
        self._waiting: deque[bytes] = deque()
        """Messages beyond the few that Ryu holds for a switch that does not read."""
        self._unanswered: set[int] = set()

    @property
    def address(self) -> str:
        host, port = self._datapath.address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def send(self, message: bytes) -> None:
        if not (self._waiting or self._datapath._send_q_sem.locked()):
            self._datapath.send(message)
            return
        self._waiting.append(message)
        if len(self._waiting) == 1:
            hub.spawn(self._send_waiting)

    def _send_waiting(self) -> None:
        """Others are sent theirs meanwhile; echoes that stay unanswered end the connection."""
        while self._waiting:
            self._datapath.send(self._waiting[0])
            self._waiting.popleft()

    def ask(self, tell: Callable[[bool], None]) -> None:
        hub.spawn(self._ask, tell)

    def _ask(self, tell: Callable[[bool], None]) -> None:
        request = ofproto_v1_3_parser.OFPEchoRequest(self._datapath)
        xid = self._datapath.set_xid(request)
        self._unanswered.add(xid)
        hub.spawn(self._datapath.send_msg, request)  # it waits while a dead peer's queue is full
        # Many short waits: the hub reads between them, so that a pause of its own counts as one.
        for _ in range(_ECHO_LOOKS):
            if xid not in self._unanswered:
                break
            hub.sleep(ECHO_S / _ECHO_LOOKS)
        tell(xid not in self._unanswered)
        self._unanswered.discard(xid)

    def answered(self, xid: int) -> None:
        """Note the answer to an echo request."""
        self._unanswered.discard(xid)

    def close(self) -> None:
        self._datapath.set_state(DEAD_DISPATCHER)
        descriptor = self._datapath.socket.fileno()
        # Ryu's own close leaves the other half open, and a TLS socket's forgets its TLS.
        with (
            contextlib.suppress(OSError),
            socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as plain,
        ):
            plain.shutdown(socket.SHUT_RDWR)


def _connection_of(datapath: Any) -> Any:
    """Its :class:`_DatapathConnection`; before the handshake None, which was asked nothing."""
    return getattr(datapath, "hydra_connection", None)


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
    ofproto_v1_3.OFPMP_METER,
)
_RYUS_KINDS = (
    ofproto_v1_3.OFPT_ECHO_REQUEST,
    ofproto_v1_3.OFPT_ECHO_REPLY,
    ofproto_v1_3.OFPT_FEATURES_REPLY,
    ofproto_v1_3.OFPT_PORT_STATUS,
)
"""Messages that Ryu reads for its own handlers; the application is handed others as bytes."""
_FIRST_KINDS = (
    ofproto_v1_3.OFPT_HELLO,
    ofproto_v1_3.OFPT_ECHO_REQUEST,
    ofproto_v1_3.OFPT_ECHO_REPLY,
    ofproto_v1_3.OFPT_FEATURES_REPLY,
)
"""Messages that are read while nobody knows which switch sends them."""
_HELLO_ELEMENT = struct.Struct("!HH")
_IN_A_ROW = 32
"""Messages of one switch, or functions posted, before others have their turn. Ryu reads 2048."""
MOST_PORTS = 10_000
"""Most ports of a switch; each takes memory as long as it is connected."""
_READ_BYTES = 65536
"""Read of a switch on TLS at a time: at least a message, of whatever kind."""
_LINES_IN_A_ROW = 32
"""Switches whose messages are read before the hub does something else."""
_MOST_READY_BYTES = 1 << 17
"""Messages of a switch that wait to be read, before what it sends stays in its connection."""
_MOST_READY_IN_ALL_BYTES = 1 << 26
_MOST_WAITING_BYTES = 1 << 28
"""What waits for a switch that does not read; rules of a switch are a thousandth of that."""
_CUT_OFF = {
    _lines.SILENT: f"it left {_UNANSWERED_ECHOES + 1} echo requests unanswered",
    _lines.STALLED: f"it read nothing for {_SOCKET_S:g} s while more was sent to it",
    _lines.FLOODED: f"{_MOST_WAITING_BYTES >> 20} MiB wait for it, and it does not read",
}
_HEADER = struct.Struct("!BBHI")
_MULTIPART_HEAD = struct.Struct("!HH")
_ERROR = struct.Struct("!HH")
_ROLE_REPLY = struct.Struct("!8xQ")
_FLOW_REMOVED = struct.Struct("!8xQ2xB")
"""Cookie and reason, behind the header."""
_PACKET_IN_MATCH = struct.Struct("!H")
_PACKET_IN_MATCH_AT = 24
"""Header, buffer id, total length, reason, table and cookie come before the match."""


class _Readable:
    """A descriptor that the green thread which makes this waits for.

    It stays with the hub from one wait to the next. Eventlet's own registers it anew for each, with
    a time-out, which takes longer than all else that is done for a short message.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hub = eventlet.hubs.get_hub()
        self._reader = eventlet.getcurrent()
        self._listener: Any = None
        self._waits = False

    def wait(self) -> None:
        if self._listener is None:
            self._listener = self._hub.add(
                self._hub.READ, self._descriptor, self._readable, self._reader.throw, None
            )
        self._waits = True
        try:
            self._hub.switch()
        finally:
            self._waits = False

    def _readable(self, _descriptor: int) -> None:
        """In the hub: go on reading; while the reader waits for something else, look no more."""
        if self._waits:
            self._reader.switch()
        else:
            self.close()

    def close(self) -> None:
        """Take it from the hub."""
        if self._listener is not None:
            self._hub.remove(self._listener)
            self._listener = None


class _Lines:
    """Connections without TLS: a thread of C reads and writes them (docs/decisions/0026).

    It answers echoes and asks for them, also while the interpreter is busy with something else.
    Other messages come in batches, each to be handled before the next is taken: a switch that sends
    more than it is its turn to waits in the thread, and then in its own buffers.
    """

    def __init__(self) -> None:
        self._native = _lines.Lines(
            echo_s=_ECHO_EVERY_S,
            unanswered=_UNANSWERED_ECHOES,
            stalled_s=_SOCKET_S,
            most_ready=_MOST_READY_BYTES,
            most_ready_in_all=_MOST_READY_IN_ALL_BYTES,
            most_waiting=_MOST_WAITING_BYTES,
        )
        self._served: dict[int, tuple[Any, Any]] = {}
        """Datapath of each line, and the event that is its end."""

    def serve(self, datapath: Any) -> None:
        """Stands in for Ryu's ``Datapath.serve``; returns when the connection has ended.

        Raises what the messages of the switch raised, and ValueError for one that is none.
        """
        hello = datapath.ofproto_parser.OFPHello(datapath)
        datapath.set_xid(hello)
        hello.serialize()
        line = self._native.adopt(datapath.socket.fileno(), hello.buf)
        ended = Event()
        datapath.hydra_line = line
        self._served[line] = datapath, ended
        try:
            end, error = ended.wait()
        finally:
            del self._served[line]
            self._native.release(line)  # then the socket may be closed
            datapath.is_active = False
        if end == _lines.MALFORMED:
            raise ValueError(f"a message of {error} bytes, its header included")
        if end in _CUT_OFF:
            LOG.warning("the switch at %s is cut off: %s", datapath.address[0], _CUT_OFF[end])

    def send(self, datapath: Any, message: bytes, close_socket: bool = False) -> bool:
        """Stands in for Ryu's ``Datapath.send``: nobody waits for a switch to read it."""
        return self._native.send(datapath.hydra_line, message, close_socket)

    def run(self) -> None:
        """Hand on what comes in: a green thread. If it ends, so does the process.

        Else switches would have their echoes answered, and nobody would hear them.
        """
        try:
            readable = _Readable(self._native.fileno())
            while True:
                if self._take():
                    hub.sleep(0)
                else:
                    readable.wait()
        except Exception as error:
            give_up(HydraError(f"what switches say is read no more: {error!r}; start it again"))
            raise

    def read(self) -> None:
        """Hand on what has come in until now, of each switch as many messages as is its turn."""
        for _ in range(len(self._served) // _LINES_IN_A_ROW + 1):
            if not self._take():
                break

    def _take(self) -> bool:
        """False if there was nothing."""
        some = self._native.take(_LINES_IN_A_ROW, _IN_A_ROW)
        for line, messages, end, error in some:
            if line in self._served:
                self._hand_on(*self._served[line], messages, (end, error))
        return bool(some)

    def _hand_on(
        self, datapath: Any, ended: Any, messages: Sequence[bytes], end: tuple[int, int]
    ) -> None:
        if ended.ready():
            return
        try:
            for message in messages:
                if datapath.state == DEAD_DISPATCHER:
                    break
                _read_message(datapath, message)
        except Exception as error:  # whatever Ryu raises at what can't be an OpenFlow message
            ended.send_exception(error)
        else:
            if end[0] != _lines.OPEN:
                ended.send(end)


_lines_of_all: list[_Lines] = []


def read_what_came() -> None:
    """Hand on what switches without TLS have sent until now; in the hub's thread only."""
    for lines in _lines_of_all:
        lines.read()


def _have_served(lines: _Lines) -> None:
    """Have Ryu leave its connections to these lines."""
    _lines_of_all[:] = [lines]

    def serve(datapath: Any) -> None:
        lines.serve(datapath)

    def send(datapath: Any, buf: bytes, close_socket: bool = False) -> bool:
        return lines.send(datapath, buf, close_socket)

    ryu_controller.Datapath.serve = serve
    ryu_controller.Datapath.send = send


def _receive(datapath: Any) -> None:
    """Hand the messages of a switch on TLS to their parsers, until its connection ends.

    Stands in for Ryu's own loop, which reads a header, then the rest, and copies what it holds at
    each step.
    """
    held = bytearray()
    while datapath.state != DEAD_DISPATCHER:
        try:
            some = datapath.socket.recv(_READ_BYTES)
        except (TimeoutError, green_ssl.SSLError):
            continue
        except (EOFError, OSError):
            break
        if not some:
            break
        held += some
        del held[: _parse(datapath, held)]


def _parse(datapath: Any, held: bytearray) -> int:
    """Have all messages read that are there as a whole; the number of their bytes."""
    at = 0
    while len(held) - at >= _HEADER.size and datapath.state != DEAD_DISPATCHER:
        length = _HEADER.unpack_from(held, at)[2]
        if length < _HEADER.size:
            raise ValueError(f"a message of {length} bytes, its header included")
        end = at + length
        if len(held) < end:
            break
        datapath.hydra_read = getattr(datapath, "hydra_read", 0) + 1
        if datapath.hydra_read % _IN_A_ROW == 0:
            hub.sleep(0)
        _read_message(datapath, bytes(held[at:end]))
        at = end
    return at


def _read_message(datapath: Any, whole: bytes) -> None:
    version, kind, length, xid = _HEADER.unpack_from(whole)
    message = ofproto_parser.msg(datapath, version, kind, length, xid, whole)
    if message:
        _hand_on(datapath, message)


def _hand_on(datapath: Any, message: Any) -> None:
    """Give a message of Ryu's to its handlers, as Ryu does."""
    brick, event = datapath.ofp_brick, ofp_event.ofp_msg_to_ev(message)
    brick.send_event_to_observers(event, datapath.state)
    state = datapath.state
    for handler in brick.get_handlers(event):
        if state in handler.callers[type(event)].dispatchers:
            handler(event)


def _read(parsers: Mapping[int, Any]) -> None:
    """Have Ryu read messages of OpenFlow 1.3 by ``parsers``, and of other versions greetings.

    Its own parsers know every kind of message, and an entry of length 0 in one of their lists is
    read for ever.
    """

    def greeting(datapath: Any, version: int, kind: int, length: int, xid: int, buf: Any) -> Any:
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
    versions.update(dict.fromkeys(versions, greeting))
    versions[ofproto_v1_3.OFP_VERSION] = message


def _parsers(events: SwitchEvents) -> dict[int, Any]:
    """Readers of each kind of message; one that returns None hands it to nobody else."""
    known = ofproto_v1_3_parser._MSG_PARSERS

    def unread(*_message: Any) -> None:
        """Not asked for; of replies about bundles, the barrier after them says what became."""

    return {
        **dict.fromkeys(known, unread),
        **{kind: known[kind] for kind in _RYUS_KINDS},
        **_of_statistics(events),
        **_of_packets(events),
        **_of_replies(events),
    }


def _of_statistics(events: SwitchEvents) -> dict[int, Any]:
    """Take flow, port and meter statistics from the raw bytes, past Ryu's object per entry.

    Ryu builds 31,000 flow statistics a second; read as arrays they cost a fraction of that.
    """
    ryu_parser = ofproto_v1_3_parser._MSG_PARSERS[ofproto_v1_3.OFPT_MULTIPART_REPLY]

    def parse(
        datapath: Any,
        version: int,
        msg_type: int,
        msg_len: int,
        xid: int,
        buf: bytearray,
    ) -> Any:
        kind, flags = _MULTIPART_HEAD.unpack_from(buf, 8)
        if kind == ofproto_v1_3.OFPMP_PORT_DESC:
            return ryu_parser(datapath, version, msg_type, msg_len, xid, buf)
        if kind in _RAW_KINDS:
            more = bool(flags & ofproto_v1_3.OFPMPF_REPLY_MORE)
            connection = _connection_of(datapath)
            events.statistics_replied(connection, xid, bytes(buf[16:msg_len]), more=more)
        return None

    return {ofproto_v1_3.OFPT_MULTIPART_REPLY: parse}


def _of_packets(events: SwitchEvents) -> dict[int, Any]:
    """Take frames from raw packet-ins, past Ryu's object with its parsed match: probes are many."""

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
    """Take barriers, errors and roles from the raw bytes, past Ryu's queue of events.

    It holds 128, and whoever waits to put one there looks through all who wait: as many steps as
    the square of the switches that answer at once.
    """

    def barrier(datapath: Any, _version: int, _type: int, _len: int, xid: int, _buf: Any) -> None:
        events.barrier_replied(_connection_of(datapath), xid)

    def role(datapath: Any, _version: int, _type: int, _len: int, xid: int, buf: Any) -> None:
        (generation,) = _ROLE_REPLY.unpack_from(buf, 8)
        events.role_replied(_connection_of(datapath), xid, generation)

    def error(datapath: Any, _version: int, _type: int, _len: int, xid: int, buf: Any) -> None:
        connection = _connection_of(datapath)
        if connection is None:
            return  # before the handshake, nothing was asked
        of_type, code = _ERROR.unpack_from(buf, 8)
        kind, text = FailureKind.REFUSED, f"OpenFlow error type {of_type}, code {code}"
        if (of_type, code) in _NOT_MASTER:
            kind, text = FailureKind.TAKEN_OVER, TAKEN_OVER
        elif (of_type, code) in _NO_EXPERIMENTERS:
            kind, text = FailureKind.NO_BUNDLES, NO_BUNDLES
        events.error_replied(connection, xid, kind, text)

    def removed(datapath: Any, _version: int, _type: int, _len: int, _xid: int, buf: Any) -> None:
        cookie, reason = _FLOW_REMOVED.unpack_from(buf)
        if reason == ofproto_v1_3.OFPRR_HARD_TIMEOUT:
            events.rule_ended(datapath.id, _connection_of(datapath), cookie)

    return {
        ofproto_v1_3.OFPT_FLOW_REMOVED: removed,
        ofproto_v1_3.OFPT_BARRIER_REPLY: barrier,
        ofproto_v1_3.OFPT_ROLE_REPLY: role,
        ofproto_v1_3.OFPT_ERROR: error,
    }


def _port_info(port: Any) -> PortInfo:
    down = bool(port.config & ofproto_v1_3.OFPPC_PORT_DOWN) or bool(
        port.state & ofproto_v1_3.OFPPS_LINK_DOWN
    )
    return PortInfo(port.port_no, port.name.decode("ascii", "replace"), not down)


class OpenFlowApp(app_manager.RyuApp):
    """Unpacks Ryu's events and hands them to the application; decides nothing."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012  (Ryu's interface)

    def compose(self, post: Post) -> Application:
        """Build the application; each concrete app overrides this."""
        raise TypeError(f"{type(self).__name__} has to override compose()")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Ryu's own takes 128 events, and whoever waits to put one there looks through all who wait.
        self.events = hub.Queue()
        self._events_sem = hub.BoundedSemaphore(sys.maxsize)
        self._mailbox = HubMailbox()
        self._stopping: threading.Thread | None = None
        self._application = self.compose(self._mailbox.post)
        self._events = self._application.events
        host, port = self._application.openflow_address
        cfg.CONF.set_override("ofp_listen_host", host)
        cfg.CONF.set_override("ofp_tcp_listen_port", port)
        cfg.CONF.set_override("echo_request_interval", _ECHO_EVERY_S)
        cfg.CONF.set_override("maximum_unreplied_echo_requests", _UNANSWERED_ECHOES)
        cfg.CONF.set_override("socket_timeout", _SOCKET_S)
        tls = self._application.openflow_tls
        context = None if tls is None else _context(tls)
        most = self._application.openflow_connections
        door = Door("OpenFlow", most, most, "the switches of the fabric")

        def server(address: tuple[str, int], handle: Callable[[Any, Any], None]) -> _SwitchServer:
            self._server = _SwitchServer(door, context, address, handle)
            return self._server

        ryu_controller.StreamServer = server
        self._lines = _Lines() if context is None else None
        if self._lines is not None:
            _have_served(self._lines)
        else:
            ryu_controller.Datapath._recv_loop = ryu_controller._deactivate(_receive)
        _read(_parsers(self._events))

    def start(self) -> None:
        super().start()
        self.threads.append(hub.spawn(self._mailbox.run))
        if self._lines is not None:
            hub.spawn(self._lines.run)
        self._application.start()

    def stop(self) -> None:
        self._mailbox.close()  # first: Ryu waits for this app's green threads before it closes it
        super().stop()

    def wind_up(self) -> None:
        """Stop the application; the hub goes on meanwhile, for what is under way."""
        if self._stopping is None:
            self._stopping = threading.Thread(target=self._application.stop, name="stopping")
            self._stopping.start()
        while self._stopping.is_alive():
            hub.sleep(_STOPPING_LOOK_S)

    def close(self) -> None:
        self.wind_up()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def _features(self, event: Any) -> None:
        datapath = event.msg.datapath
        datapath.hydra_connection = _DatapathConnection(datapath)
        datapath.hydra_auxiliary = event.msg.auxiliary_id

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def _state_changed(self, event: Any) -> None:
        datapath = event.datapath
        if datapath.id is None:
            return
        connection = datapath.hydra_connection
        if event.state == DEAD_DISPATCHER:
            connection.close()  # Ryu's reader may be waiting for a dead peer
            self._events.switch_disconnected(datapath.id, connection)
        elif datapath.hydra_auxiliary:
            connection.close()  # everything is said on the main connection
        else:
            self._server.settle(datapath.address)
            ports = {number: _port_info(port) for number, port in datapath.ports.items()}
            self._events.switch_connected(datapath.id, connection, ports)

    @set_ev_cls(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def _echo_reply(self, event: Any) -> None:
        event.msg.datapath.hydra_connection.answered(event.msg.xid)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def _port_status(self, event: Any) -> None:
        message = event.msg
        datapath, deleted = message.datapath, message.reason == ofproto_v1_3.OFPPR_DELETE
        self._events.port_changed(
            datapath.id, datapath.hydra_connection, _port_info(message.desc), deleted=deleted
        )
