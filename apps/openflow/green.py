"""Ryu on eventlet's hub: the green threads of its manager, and what stands in for some of them."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

# isort: off
from apps.openflow import package, refusals, seam  # prepares eventlet
import eventlet
from eventlet.event import Event
from eventlet.green import ssl as green_ssl

# isort: on
from apps.openflow.lines import Lines
from apps.openflow.messages import read_message, whole_message
from apps.openflow.package import (
    DEAD_DISPATCHER,
    cfg,
    controller,
    hub,
    ofproto_v1_3_parser,
)
from apps.openflow.seam import (
    BACKLOG,
    ECHO_EVERY_S,
    ECHO_LOOKS,
    ECHO_S,
    HANDSHAKES,
    HANDSHAKES_LOOK_S,
    IN_A_ROW,
    SOCKET_S,
    UNANSWERED_ECHOES,
    OpenFlowTls,
    Pace,
    Post,
    Refused,
    Stopping,
)
from apps.process.certificates import Renewable
from apps.process.doors import RETRY_S, Door
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.framework")
_STOPPING_LOOK_S: Final = 0.01
_READ_BYTES: Final = 65536
"""Read of a switch on TLS at a time: at least a message, of whatever kind."""


def run_manager(arguments: list[str], stopping: Stopping) -> None:
    """Ryu's own ``ryu-manager`` main, in a prepared process; SIGINT and SIGTERM end it.

    ``stopping`` begins to stop all applications, each in a thread that it returns. Raises
    KeyboardInterrupt if a signal comes before Ryu's main loop runs, and HydraError if Ryu's
    listener ends by itself.
    """
    manager = package.ryu_manager()
    main = eventlet.getcurrent()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        """Only in the main green thread: others swallow it, and the hub would lose what it does."""
        impatient = bool(signals)
        signals.append(number)
        if not impatient:
            seam.end_in_time()
        eventlet.hubs.get_hub().schedule_call_global(0, leave if impatient else end)
        if eventlet.getcurrent() is main:
            raise KeyboardInterrupt  # swallowed if it meets a destructor: then the hub sees to it

    def end() -> None:
        hub.spawn(wind_up)

    def wind_up() -> None:
        """Ryu closes apps when it serves no switch any more, and a change under way needs them."""
        for thread in stopping():
            _wait_for(thread)
        eventlet.hubs.get_hub().schedule_call_global(0, leave)

    def leave() -> None:
        main.throw(KeyboardInterrupt)

    signals: list[int] = []
    eventlet.spawn(_keep_empty, seam.at_signals(interrupt))
    manager.main(args=arguments, prog="ryu-manager")
    if not signals:
        raise HydraError(
            "OpenFlow's listener has ended by itself, the log says why: start it again"
        )


def _wait_for(thread: threading.Thread) -> None:
    while thread.is_alive():
        hub.sleep(_STOPPING_LOOK_S)


def _keep_empty(pipe: int) -> None:
    """Socket that a signal writes to: it ends the hub's wait, so that it looks at its timers."""
    while True:
        eventlet.hubs.trampoline(pipe, read=True)
        with contextlib.suppress(BlockingIOError):  # woken for nothing, as when the hub ends
            os.read(pipe, 4096)


def _context(tls: OpenFlowTls) -> Any:
    context = green_ssl.SSLContext(green_ssl.PROTOCOL_TLS_SERVER)
    tls.load_into(context)
    return context


class _SwitchServer:
    """Stands in for Ryu's ``StreamServer``.

    Ryu's own ends with the process's descriptors, keeps whoever says nothing, reads its TLS
    settings for the first connection only, and wraps sockets that block.
    """

    def __init__(
        self,
        door: Door,
        files: Renewable[Any] | None,
        address: tuple[str, int],
        handle: Callable[[Any, Any], None],
        refused: Refused,
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.server = eventlet.listen(address, family, BACKLOG, reuse_port=False)
        self._door = door
        self._files = files
        self._handle = handle
        self._refused = refused
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
            while busy and len(self._unsettled) >= HANDSHAKES:
                before_s = time.thread_time()
                hub.sleep(HANDSHAKES_LOOK_S)
                busy = time.thread_time() - before_s > HANDSHAKES_LOOK_S / 4

    def settle(self, peer: Any) -> None:
        """Note that a switch has completed its handshake."""
        self._unsettled.pop(peer, None)

    def _serve(self, connection: Any, peer: Any) -> None:
        timer = hub.spawn_after(seam.HANDSHAKE_S, self._look, peer)
        try:
            if self._files is not None:
                with eventlet.Timeout(seam.HANDSHAKE_S):
                    connection = self._files.context().wrap_socket(connection, server_side=True)
                self._unsettled[peer] = connection
            self._handle(connection, peer)
        except (Exception, eventlet.Timeout) as error:  # also whatever Ryu raises at a message
            self._tell(peer, error)
        finally:
            hub.kill(timer)
            connection.close()
            self._unsettled.pop(peer, None)
            self._door.leave(peer[0])

    def _tell(self, peer: Any, error: BaseException) -> None:
        """Tell why a connection ended that is no switch's."""
        if (why := refusals.of_mismatch(error)) is not None:
            self._refused(seam.address_in_words(peer), why)
        elif isinstance(error, OSError | eventlet.Timeout):
            LOG.warning("%s is not let in as a switch: %s", peer[0], error)
        else:
            LOG.warning("%s is cut off: no switch sends that: %r", peer[0], error)

    def _look(self, peer: Any) -> None:
        connection = self._unsettled.get(peer)
        if connection is not None:
            LOG.warning("%s has not become a switch within %s s", peer[0], seam.HANDSHAKE_S)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _NoServer:
    """Stands in for Ryu's ``StreamServer`` where no switch is let in: Ryu waits for its end."""

    def __init__(self, *_address: Any, **_options: Any) -> None:
        pass

    def serve_forever(self) -> None:
        Event().wait()


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
            eventlet.hubs.trampoline(self._reader, read=True)
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 65536)
            self._woken = False  # before it looks: what is posted from here on wakes it again
            # Not what these post: that may go on for good.
            for done in range(1, len(self._waiting) + 1):
                self._waiting.popleft()()
                if done % IN_A_ROW == 0:
                    hub.sleep(0)

    def close(self) -> None:
        """End :meth:`run`, waking it."""
        self._closed = True
        self.post(lambda: None)


class _DatapathConnection:
    """A Ryu datapath as a :class:`~apps.openflow.seam.SwitchConnection`."""

    __slots__ = ("_datapath", "_unanswered", "_waiting")

    def __init__(self, datapath: Any) -> None:
        self._datapath = datapath
        self._waiting: deque[bytes] = deque()
        """Messages beyond the few that Ryu holds for a switch that does not read."""
        self._unanswered: set[int] = set()

    @property
    def address(self) -> str:
        return seam.address_in_words(self._datapath.address)

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
        for _ in range(ECHO_LOOKS):
            if xid not in self._unanswered:
                break
            hub.sleep(ECHO_S / ECHO_LOOKS)
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


def _receive(datapath: Any) -> None:
    """Hand the messages of a switch on TLS to their parsers, until its connection ends.

    Stands in for Ryu's own loop, which reads a header, then the rest, and copies what it holds at
    each step.
    """
    held = bytearray()
    datapath.hydra_pace = Pace(time.monotonic())
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
    at = since = 0
    while (message := whole_message(held, at)) is not None:
        since += 1
        if since == IN_A_ROW:
            hub.sleep(datapath.hydra_pace.rest_s(since, time.monotonic()))
            since = 0
        if not read_message(datapath, message):
            return at
        at += len(message)
    rest_s = datapath.hydra_pace.rest_s(since, time.monotonic())
    if rest_s:
        hub.sleep(rest_s)
    return at


class GreenHub:
    """Ryu as it runs by itself: its listener, and a green thread or more for each connection."""

    def __init__(self) -> None:
        self._mailbox = HubMailbox()
        self._server: _SwitchServer
        self._lines: Lines | None = None

    @property
    def post(self) -> Post:
        return self._mailbox.post

    def listen_at(
        self, address: tuple[str, int], tls: OpenFlowTls | None, door: Door, refused: Refused
    ) -> None:
        cfg.CONF.set_override("ofp_listen_host", address[0])
        cfg.CONF.set_override("ofp_tcp_listen_port", address[1])
        cfg.CONF.set_override("echo_request_interval", ECHO_EVERY_S)
        cfg.CONF.set_override("maximum_unreplied_echo_requests", UNANSWERED_ECHOES)
        cfg.CONF.set_override("socket_timeout", SOCKET_S)
        files = None if tls is None else Renewable(tls.paths, lambda: _context(tls))

        def server(address: tuple[str, int], handle: Callable[[Any, Any], None]) -> _SwitchServer:
            self._server = _SwitchServer(door, files, address, handle, refused)
            return self._server

        controller.StreamServer = server
        if files is None:
            lines = self._lines = Lines(read_message)
            controller.Datapath.serve = lambda datapath: _serve(lines, datapath)
            controller.Datapath.send = _sending(lines)
        else:
            controller.Datapath._recv_loop = controller._deactivate(_receive)

    def listen_nowhere(self) -> None:
        controller.StreamServer = _NoServer

    def start(self, app: Any) -> None:
        app.threads.append(hub.spawn(self._mailbox.run))
        if self._lines is not None:
            hub.spawn(_run, self._lines)

    def close(self) -> None:
        self._mailbox.close()

    def connection_of(self, datapath: Any) -> _DatapathConnection:
        return _DatapathConnection(datapath)

    def ignore(self, datapath: Any) -> None:
        if self._lines is not None:
            self._lines.ignore(datapath)
        else:
            datapath.hydra_pace.is_stranger = True

    def settle(self, datapath: Any) -> None:
        self._server.settle(datapath.address)

    def wait_for(self, thread: threading.Thread) -> None:
        _wait_for(thread)


def _sending(lines: Lines) -> Callable[..., bool]:
    """A function, as a bound method would not be told the datapath."""

    def send(datapath: Any, message: bytes, close_socket: bool = False) -> bool:
        return lines.send(datapath, message, close_socket)

    return send


def _serve(lines: Lines, datapath: Any) -> None:
    """Stands in for Ryu's ``Datapath.serve``; returns when the connection has ended.

    Raises what the messages of the switch raised.
    """
    ended = Event()
    lines.begin(
        datapath, lambda raised: ended.send() if raised is None else ended.send_exception(raised)
    )
    try:
        ended.wait()
    finally:
        lines.release(datapath)


def _run(lines: Lines) -> None:
    """Hand on what comes in: a green thread. If it ends, so does the process.

    Else switches would have their echoes answered, and nobody would hear them.
    """
    try:
        readable = _Readable(lines.fileno())
        while True:
            if lines.take():
                hub.sleep(0)
            else:
                readable.wait()
    except Exception as error:
        seam.give_up(HydraError(seam.unread(error)))
        raise
