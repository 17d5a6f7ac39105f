"""OpenFlow's side of the controller: applications of Ryu or os-ken, from launch to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections import deque
from types import FrameType
from typing import Any, Final

from apps.openflow import interface, package
from apps.openflow.connection import Datapath
from apps.openflow.interface import Application, OpenFlowTls, Peer, Post
from apps.openflow.lines import Lines
from apps.openflow.listener import Listener
from apps.openflow.mailbox import Mailbox
from apps.openflow.messages import Reader, port_info
from apps.openflow.package import HOST, handler, ofp_event, ofproto_v1_3
from apps.openflow.tls import TlsThread
from apps.process import shutdown
from apps.process.admitted_connections import Door, Sparing
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.framework")
LOG.addFilter(Sparing(lambda record: "switch" in str(record.msg)))
_STOPPING_LOOK_S: Final = 0.01


def run_manager(arguments: list[str]) -> None:
    """Run the applications in the given files or modules, until SIGINT or SIGTERM.

    Takes the flags of ``ryu-manager``, or with os-ken the flags of os-ken's OpenFlow. Raises
    KeyboardInterrupt if a signal comes before the loop runs, the HydraError given to
    :func:`~apps.process.shutdown.give_up`, and HydraError if the loop ends by itself.
    """
    try:
        signals = _end_at_signals()
        HOST.run(arguments)
        if not signals:
            raise HydraError(
                "OpenFlow has ended by itself: see the log for the cause, and start the "
                "controller again"
            )
    finally:  # also for an error before the loop ran
        shutdown.raise_given_up()


def _end_at_signals() -> list[int]:
    """The first signal stops the applications while the loop goes on; the second does not wait.

    Returns the list of received signals.
    """
    loop, signals = HOST.loop(), list[int]()
    ends: list[asyncio.Task[None]] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        impatient = bool(signals)
        signals.append(number)
        if not impatient:
            shutdown.end_in_time()
        loop.call_soon_threadsafe(HOST.leave if impatient else end)
        if HOST.is_outside_loop():
            raise KeyboardInterrupt  # a destructor may swallow the exception; the loop then leaves

    def end() -> None:
        ends.append(loop.create_task(wind_up()))

    async def wind_up() -> None:
        """Stop the applications, then leave the loop.

        The package closes applications after their switches, but finishing the work under way needs
        the switches.
        """
        applications = package.app_manager.AppManager.get_instance().applications.values()
        for thread in [app.stopping() for app in applications if isinstance(app, OpenFlowApp)]:
            await _ended(thread)
        HOST.leave()

    reader = shutdown.at_signals(interrupt)
    loop.add_reader(reader, lambda: os.read(reader, 4096))
    return signals


async def _ended(thread: threading.Thread) -> None:
    while thread.is_alive():
        await asyncio.sleep(_STOPPING_LOOK_S)


class OpenFlowApp(package.App):
    """Accepts switches and unpacks messages for the application; decides nothing."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012  (the package's interface)

    def compose(self, post: Post) -> Application:
        """Build the application; each concrete app overrides the method."""
        raise TypeError(f"{type(self).__name__} has to override compose({post})")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop: asyncio.AbstractEventLoop = HOST.loop()
        self._mailbox = Mailbox(self._loop)
        self._due: deque[tuple[Any, Any]] = deque()
        self._handles = False
        self._stopping: threading.Thread | None = None
        self._application = self.compose(self._mailbox.post)
        self._events = self._application.events
        HOST.open_no_port()
        self._listener: Listener | None = None
        if self._application.openflow_address is not None:
            self._listen_at(self._application.openflow_address, self._application.openflow_tls)

    def _listen_at(self, address: tuple[str, int], tls: OpenFlowTls | None) -> None:
        self._tls = None if tls is None else TlsThread(tls)
        self._lines = Lines(Reader(self._events).read)
        most = self._application.openflow_connections
        door = Door("OpenFlow", most, most, "the switches of the fabric")
        self._listener = Listener(self._loop, door, address, self._serve, self._refused)

    def _refused(self, address: str, why: str) -> None:
        self._events.switch_refused(None, address, why)

    async def _serve(self, connection: socket.socket, peer: Peer) -> None:
        if self._tls is None:
            await self._carry(connection, peer)
            return
        async with self._tls.inside(connection) as plain:
            await self._carry(plain, peer)

    async def _carry(self, connection: socket.socket, peer: Peer) -> None:
        """Serve a switch, or a possible switch, until the connection ends.

        Raises the exceptions raised by the messages.
        """
        with contextlib.closing(Datapath(connection, peer, self._lines, self._loop)) as datapath:
            over = self._loop.create_future()

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

    def _take(self) -> None:
        """Read some of the received messages; the descriptor stays readable while messages are
        left.
        """
        try:
            self._lines.take()
        except Exception as error:
            # The C thread would go on answering echoes, with the switches' messages unread.
            self._loop.remove_reader(self._lines.fileno())
            shutdown.give_up(HydraError(interface.unread(error)))
            raise

    def _send_event(self, event: Any, state: Any) -> None:
        """Replaces the package's method, which has a queue of 128 events.

        An event is handled before the next message is read, so events do not pile up here. An event
        caused by a handler is handled once the handler has returned.
        """
        self._due.append((event, state))
        if self._handles:
            return
        self._handles = True
        try:
            while self._due:
                self._handle(*self._due.popleft())
        finally:
            self._handles = False

    def _handle(self, event: Any, state: Any) -> None:
        for observer in self.get_handlers(event, state):
            try:
                observer(event)
            except Exception:  # concerns at most a single switch: go on
                LOG.exception("%s is not handled", type(event).__name__)

    def start(self) -> None:
        """Replaces the package's method: the package's event queue stays empty."""
        self._mailbox.run()
        if self._listener is not None:
            self._listener.start()
            self._loop.add_reader(self._lines.fileno(), self._take)
            self._loop.call_soon(self._take)  # should reading fail, fail before a switch connects
        self._application.start()

    def stopping(self) -> threading.Thread:
        """The thread that stops the application; meanwhile the loop has to go on."""
        if self._stopping is None:
            self._stopping = threading.Thread(target=self._application.stop, name="stopping")
            self._stopping.start()
        return self._stopping

    def close(self) -> None:
        HOST.wait_for(_ended(self.stopping()))

    @handler.set_ev_cls(ofp_event.EventOFPSwitchFeatures, handler.CONFIG_DISPATCHER)
    def _features(self, event: Any) -> None:
        event.msg.datapath.is_auxiliary = bool(event.msg.auxiliary_id)

    @handler.set_ev_cls(
        ofp_event.EventOFPStateChange, [handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER]
    )
    def _state_changed(self, event: Any) -> None:
        datapath = event.datapath
        if datapath.id is None:
            if datapath.refused_for is not None:  # the switch sent no datapath id
                self._refused(interface.address_in_words(datapath.address), datapath.refused_for)
        elif event.state == handler.DEAD_DISPATCHER:
            datapath.connection.close()  # the reader may wait for a dead peer
            self._events.switch_disconnected(datapath.id, datapath.connection)
        elif datapath.is_auxiliary:
            datapath.connection.close()  # the main connection carries everything
        else:
            self._let_in(datapath)

    def _let_in(self, datapath: Any) -> None:
        if self._listener is not None:
            self._listener.settle(datapath.address)
        if not self._events.knows(datapath.id):
            datapath.is_stranger = True
            self._lines.ignore(datapath)
        ports = {number: port_info(port) for number, port in datapath.ports.items()}
        self._events.switch_connected(datapath.id, datapath.connection, ports)

    @handler.set_ev_cls(ofp_event.EventOFPEchoReply, handler.MAIN_DISPATCHER)
    def _echo_reply(self, event: Any) -> None:
        event.msg.datapath.connection.answered(event.msg.xid)

    @handler.set_ev_cls(ofp_event.EventOFPPortStatus, handler.MAIN_DISPATCHER)
    def _port_status(self, event: Any) -> None:
        message = event.msg
        datapath, deleted = message.datapath, message.reason == ofproto_v1_3.OFPPR_DELETE
        self._events.port_changed(
            datapath.id, datapath.connection, port_info(message.desc), deleted=deleted
        )
