"""os-ken's handshake and parsers on an asyncio loop of ours, in one thread, without eventlet.

os-ken's own hub gives each switch three native threads, and has no manager to launch applications
with (docs/decisions/0025). Connections without TLS are served by the thread of C, like Ryu's; those
on TLS by asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from apps.openflow import refusals, seam
from apps.openflow.lines import Lines
from apps.openflow.messages import read_message, whole_message
from apps.openflow.package import (
    DEAD_DISPATCHER,
    app_manager,
    cfg,
    controller,
    ofp_handler,
    ofproto_v1_3_parser,
)
from apps.openflow.seam import (
    BACKLOG,
    ECHO_EVERY_S,
    ECHO_LOOKS,
    ECHO_S,
    FLOODED_WORDS,
    HANDSHAKES,
    HANDSHAKES_LOOK_S,
    IN_A_ROW,
    MOST_WAITING_BYTES,
    SILENT_WORDS,
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
LOOP: Final = asyncio.new_event_loop()
"""The process's one loop: os-ken's manager of applications is one for the process, too."""


def run_manager(arguments: list[str], stopping: Stopping) -> None:
    """Run os-ken's applications, until SIGINT or SIGTERM.

    ``stopping`` begins to stop all of ours, each in a thread that it returns. Raises
    KeyboardInterrupt if a signal comes before the loop runs, and HydraError if no application is
    one of ours.
    """
    cfg.CONF.register_cli_opts([cfg.MultiStrOpt("app", positional=True, default=[])])
    cfg.CONF(args=arguments, project="os_ken", prog="ryu-manager", default_config_files=[])
    ofp_handler.OFPHandler.start = _leave_listening_to_us
    over = LOOP.create_future()
    _end_at_signals(stopping, over)
    manager = app_manager.AppManager.get_instance()
    try:
        manager.load_apps(cfg.CONF.app)
        if manager.instantiate_apps(**manager.create_contexts()):
            LOG.warning("main threads of other applications are not waited for")
        if not LoopHub.serving:
            raise HydraError("no application has switches: OpenFlow has ended by itself")
        LOOP.run_until_complete(over)
    finally:
        manager.close()


def _leave_listening_to_us(_handler: Any) -> None:
    """Stands in for the start of os-ken's listener, and of a thread for its events: it has none."""


def _end_at_signals(stopping: Stopping, over: asyncio.Future[None]) -> None:
    """The first signal stops the applications while the loop goes on; the second does not wait."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        impatient = bool(signals)
        signals.append(number)
        if not impatient:
            seam.end_in_time()
        if not LOOP.is_running():
            raise KeyboardInterrupt
        LOOP.call_soon_threadsafe(leave if impatient else end)

    def end() -> None:
        ends.append(LOOP.create_task(wind_up()))

    async def wind_up() -> None:
        for thread in stopping():
            await _ended(thread)
        leave()

    def leave() -> None:
        if not over.done():
            over.set_result(None)

    signals: list[int] = []
    ends: list[asyncio.Task[None]] = []
    reader = seam.at_signals(interrupt)
    LOOP.add_reader(reader, lambda: os.read(reader, 4096))


async def _ended(thread: threading.Thread) -> None:
    while thread.is_alive():
        await asyncio.sleep(_STOPPING_LOOK_S)


class LoopMailbox:
    """Carries functions from native threads into the loop.

    It is woken once for all that are posted before it looks: each wake-up would have who posts wait
    for the interpreter's lock again. Others have their turn after every few functions.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._woken = True
        """Until :meth:`run`, nobody has to be woken; then from a wake-up until the next look."""

    def post(self, function: Callable[[], None]) -> None:
        self._waiting.append(function)
        if self._woken:
            return
        self._woken = True
        with contextlib.suppress(
            RuntimeError
        ):  # the loop has been closed: nobody is there any more
            self._loop.call_soon_threadsafe(self._look)

    def run(self) -> None:
        """Carry out what is posted from now on, and what waits; in the loop's thread."""
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._woken = False  # before it looks: what is posted from here on wakes it again
        for _ in range(IN_A_ROW):
            if not self._waiting:
                return
            try:
                self._waiting.popleft()()
            except Exception:  # of whoever posted it: others' are carried out
                LOG.exception("what was posted has failed")
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._look)


class LoopHub:
    """A loop's part for one application."""

    serving: Final[list[LoopHub]] = []
    """Those that have begun."""

    def __init__(self) -> None:
        self._mailbox = LoopMailbox(LOOP)
        self._listener: _Listener | None = None

    @property
    def post(self) -> Post:
        return self._mailbox.post

    def listen_at(
        self, address: tuple[str, int], tls: OpenFlowTls | None, door: Door, refused: Refused
    ) -> None:
        carriage: _Plain | _Encrypting = _Plain() if tls is None else _Encrypting(tls)
        try:
            self._listener = _Listener(door, address, carriage.carry, refused)
        except OSError as error:
            place = seam.address_in_words(address)
            raise HydraError(
                f"controller.openflow: can't listen at {place}: {error.strerror}"
            ) from error

    def listen_nowhere(self) -> None:
        self._listener = None

    def start(self, _app: Any) -> None:
        self._mailbox.run()
        if self._listener is not None:
            self._listener.start()
        self.serving.append(self)

    def close(self) -> None:
        """Nothing: what is posted waits for a loop that runs no more."""

    def connection_of(self, datapath: Any) -> _Connection:
        return _Connection(datapath)

    def ignore(self, datapath: Any) -> None:
        datapath.hydra_carriage.ignore(datapath)

    def settle(self, datapath: Any) -> None:
        if self._listener is not None:
            self._listener.settle(datapath.address)

    def wait_for(self, thread: threading.Thread) -> None:
        LOOP.run_until_complete(_ended(thread))


Carry = Callable[[socket.socket, Any], Any]
"""Serve one connection of a switch: a coroutine that ends with it, and raises what it sent."""


class _Listener:
    """Where switches connect to."""

    def __init__(
        self, door: Door, address: tuple[str, int], carry: Carry, refused: Refused
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.server = socket.create_server(
            address, family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6
        )
        self.server.setblocking(False)
        self._door = door
        self._carry = carry
        self._refused = refused
        self._arrived: asyncio.Queue[tuple[socket.socket, Any]] = asyncio.Queue()
        self._unsettled: dict[Any, socket.socket] = {}
        """Connections whose handshake has begun and is not completed, by their other end."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        LOOP.add_reader(self.server, self._accept)
        self._spawn(self._let_in())

    def _spawn(self, coroutine: Any) -> None:
        task = LOOP.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self) -> None:
        try:
            connection, peer = self.server.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._door.failed(error)
            LOOP.remove_reader(self.server)
            LOOP.call_later(RETRY_S, LOOP.add_reader, self.server, self._accept)
            return
        if self._door.enter(peer[0]):
            self._arrived.put_nowait((connection, peer))
        else:
            connection.close()

    async def _let_in(self) -> None:
        """Serve those who arrive, each once the loop is done with most of those before.

        Who says nothing gives the loop nothing to do: others do not wait for them.
        """
        while True:
            connection, peer = await self._arrived.get()
            self._unsettled[peer] = connection
            self._spawn(self._serve(connection, peer))
            busy = True
            while busy and len(self._unsettled) >= HANDSHAKES:
                before_s = time.thread_time()
                await asyncio.sleep(HANDSHAKES_LOOK_S)
                busy = time.thread_time() - before_s > HANDSHAKES_LOOK_S / 4

    def settle(self, peer: Any) -> None:
        """Note that a switch has completed its handshake."""
        self._unsettled.pop(peer, None)

    async def _serve(self, connection: socket.socket, peer: Any) -> None:
        timer = LOOP.call_later(seam.HANDSHAKE_S, self._look, peer)
        try:
            await self._carry(connection, peer)
        except Exception as error:  # also whatever os-ken raises at a message
            self._tell(peer, error)
        finally:
            timer.cancel()
            connection.close()
            self._unsettled.pop(peer, None)
            self._door.leave(peer[0])

    def _tell(self, peer: Any, error: BaseException) -> None:
        """Tell why a connection ended that is no switch's."""
        if (why := refusals.of_mismatch(error)) is not None:
            self._refused(seam.address_in_words(peer), why)
        elif isinstance(error, OSError):
            LOG.warning("%s is not let in as a switch: %s", peer[0], error)
        else:
            LOG.warning("%s is cut off: no switch sends that: %r", peer[0], error)

    def _look(self, peer: Any) -> None:
        connection = self._unsettled.get(peer)
        if connection is not None:
            LOG.warning("%s has not become a switch within %s s", peer[0], seam.HANDSHAKE_S)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Datapath(controller.Datapath):
    """A switch as os-ken's handshake and parsers see it; it has no thread of its own."""

    def __init__(self, connection: socket.socket, peer: Any, carriage: Any) -> None:
        super().__init__(connection, peer)
        connection.setblocking(False)  # os-ken gives it a time-out, which would be waited for
        self.hydra_carriage = carriage

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        return bool(self.hydra_carriage.send(self, buf, close_socket))


class _Plain:
    """Connections without TLS."""

    def __init__(self) -> None:
        self._lines = Lines(read_message)
        LOOP.add_reader(self._lines.fileno(), self._take)
        LOOP.call_soon(self._take)  # if it can't be done, better before a switch relies on it

    def _take(self) -> None:
        """Some of what came; the descriptor can be read as long as there is more."""
        try:
            self._lines.take()
        except Exception as error:
            # The thread of C would have echoes answered, and nobody would hear the switches.
            LOOP.remove_reader(self._lines.fileno())
            seam.give_up(HydraError(seam.unread(error)))
            raise

    async def carry(self, connection: socket.socket, peer: Any) -> None:
        with contextlib.closing(_Datapath(connection, peer, self)) as datapath:
            over = LOOP.create_future()

            def ended(raised: BaseException | None) -> None:
                if raised is None:
                    over.set_result(None)
                else:
                    over.set_exception(raised)

            self._lines.begin(datapath, ended)
            try:
                await over
            finally:
                self._lines.release(datapath)

    def send(self, datapath: Any, message: bytes, last: bool) -> bool:
        return self._lines.send(datapath, message, last)

    def ignore(self, datapath: Any) -> None:
        self._lines.ignore(datapath)

    def cut(self, datapath: Any) -> None:
        with contextlib.suppress(OSError):
            datapath.socket.shutdown(socket.SHUT_RDWR)


def _context(tls: OpenFlowTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_into(context)
    return context


class _Encrypting:
    """Connections on TLS."""

    def __init__(self, tls: OpenFlowTls) -> None:
        self._files = Renewable(tls.paths, lambda: _context(tls))

    async def carry(self, connection: socket.socket, peer: Any) -> None:
        connection.setblocking(False)
        # The transport has a descriptor of its own, which it closes; ours is closed where it came.
        _, switch = await LOOP.connect_accepted_socket(
            lambda: _Encrypted(connection, peer),
            connection.dup(),
            ssl=self._files.context(),
            ssl_handshake_timeout=seam.HANDSHAKE_S,
        )
        await switch.over


class _Encrypted(asyncio.Protocol):
    """A switch on TLS."""

    def __init__(self, connection: socket.socket, peer: Any) -> None:
        self._connection = connection
        self._peer = peer
        self._held = bytearray()
        self._paused = False
        self._pace = Pace(LOOP.time())
        self.over: asyncio.Future[None] = LOOP.create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._datapath = _Datapath(self._connection, self._peer, self)
        self._datapath.send_msg(self._datapath.ofproto_parser.OFPHello(self._datapath))
        self._ask_for_echo()

    def data_received(self, data: bytes) -> None:
        self._held += data
        if not self._paused:
            self._read()

    def _read(self) -> None:
        """Some whole messages; the rest once others have had their turn, or at its pace."""
        if self.over.done():
            return
        at = messages = 0
        try:
            while messages < IN_A_ROW and (message := whole_message(self._held, at)) is not None:
                if not read_message(self._datapath, message):
                    break
                messages += 1
                at += len(message)
            del self._held[:at]
            more = self._datapath.state != DEAD_DISPATCHER and whole_message(self._held, 0)
        except Exception as error:  # whatever os-ken raises at what can't be an OpenFlow message
            self._end(error)
            return
        rest_s = self._pace.rest_s(messages, LOOP.time())
        if more or rest_s:
            if not self._paused:
                self._paused = True
                self._transport.pause_reading()
            LOOP.call_later(rest_s, self._read)
        elif self._paused:
            self._paused = False
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's interface)
        self._end(None)

    def send(self, _datapath: Any, message: bytes, last: bool) -> bool:
        if self.over.done():
            return False
        self._transport.write(bytes(message))
        if last:
            self._transport.close()
        elif self._transport.get_write_buffer_size() > MOST_WAITING_BYTES:
            self._cut_off(FLOODED_WORDS)
        return True

    def ignore(self, _datapath: Any) -> None:
        self._pace.is_stranger = True

    def cut(self, _datapath: Any) -> None:
        self._transport.abort()

    def _ask_for_echo(self) -> None:
        """Who reads nothing answers nothing, so that this finds it, too."""
        if len(self._datapath.unreplied_echo_requests) > UNANSWERED_ECHOES:
            self._cut_off(SILENT_WORDS)
            return
        self._echo = LOOP.call_later(ECHO_EVERY_S, self._ask_for_echo)
        request = ofproto_v1_3_parser.OFPEchoRequest(self._datapath)
        self._datapath.unreplied_echo_requests.append(self._datapath.set_xid(request))
        self._datapath.send_msg(request)

    def _cut_off(self, why: str) -> None:
        LOG.warning("the switch at %s is cut off: %s", self._peer[0], why)
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self.over.done():
            return
        self._echo.cancel()
        self._datapath.close()
        self._datapath.is_active = False
        self._transport.abort()
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


class _Connection:
    """A datapath as a :class:`~apps.openflow.seam.SwitchConnection`."""

    __slots__ = ("_datapath", "_unanswered")

    def __init__(self, datapath: Any) -> None:
        self._datapath = datapath
        self._unanswered: set[int] = set()

    @property
    def address(self) -> str:
        return seam.address_in_words(self._datapath.address)

    def send(self, message: bytes) -> None:
        self._datapath.send(message)

    def ask(self, tell: Callable[[bool], None]) -> None:
        request = ofproto_v1_3_parser.OFPEchoRequest(self._datapath)
        xid = self._datapath.set_xid(request)
        self._unanswered.add(xid)
        self._datapath.send_msg(request)
        self._look(xid, tell, ECHO_LOOKS)

    def _look(self, xid: int, tell: Callable[[bool], None], looks: int) -> None:
        """Many short waits: the loop reads between them, so that a pause of its counts as one."""
        if xid in self._unanswered and looks:
            LOOP.call_later(ECHO_S / ECHO_LOOKS, self._look, xid, tell, looks - 1)
            return
        answered = xid not in self._unanswered
        self._unanswered.discard(xid)
        tell(answered)

    def answered(self, xid: int) -> None:
        """Note the answer to an echo request."""
        self._unanswered.discard(xid)

    def close(self) -> None:
        self._datapath.set_state(DEAD_DISPATCHER)
        self._datapath.hydra_carriage.cut(self._datapath)
