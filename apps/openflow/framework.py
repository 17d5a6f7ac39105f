"""OpenFlow's side of the controller, whichever package and hub it runs on."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

from apps.openflow import package, seam
from apps.openflow.messages import have_read, parsers, port_info
from apps.openflow.package import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    ofp_event,
    ofproto_v1_3,
    set_ev_cls,
)
from apps.openflow.seam import Application, Hub, Post
from apps.process.doors import Door, Sparing

LOG = logging.getLogger("hydra.framework")
LOG.addFilter(Sparing(lambda record: "switch" in str(record.msg)))


def _hub() -> Hub:
    if package.NAME == package.OS_KEN:
        from apps.openflow.looped import LoopHub  # noqa: PLC0415  (the other one is not imported)

        return LoopHub()
    from apps.openflow.green import GreenHub  # noqa: PLC0415

    return GreenHub()


def hubs() -> Any:
    """The module that runs the package's hub; its first use imports much of the package."""
    if package.NAME == package.OS_KEN:
        from apps.openflow import looped  # noqa: PLC0415  (the chosen package alone is there)

        return looped
    from apps.openflow import green  # noqa: PLC0415  (see above)

    return green


def run_manager(arguments: list[str]) -> None:
    """Run the applications whose files or modules these are, until SIGINT or SIGTERM.

    Takes the flags of ``ryu-manager``, or with os-ken those of its OpenFlow. Raises
    KeyboardInterrupt if a signal comes before the hub runs, the HydraError that was given to
    :func:`~apps.openflow.seam.give_up`, and HydraError if it ends by itself.
    """
    try:
        hubs().run_manager(arguments, _stopping)
    finally:  # also where that came before the hub ran
        seam.raise_what_was_given_up()


def _stopping() -> list[threading.Thread]:
    applications = package.app_manager.AppManager.get_instance().applications.values()
    return [app.stopping() for app in applications if isinstance(app, OpenFlowApp)]


class OpenFlowApp(package.App):
    """Unpacks OpenFlow's events and hands them to the application; decides nothing."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012  (the package's interface)

    def compose(self, post: Post) -> Application:
        """Build the application; each concrete app overrides this."""
        raise TypeError(f"{type(self).__name__} has to override compose({post})")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hub = _hub()
        self._due: deque[tuple[Any, Any]] = deque()
        self._handles = False
        self._stopping: threading.Thread | None = None
        self._application = self.compose(self._hub.post)
        self._events = self._application.events
        address, tls = self._application.openflow_address, self._application.openflow_tls
        if address is None:
            self._hub.listen_nowhere()
        else:
            most = self._application.openflow_connections
            door = Door("OpenFlow", most, most, "the switches of the fabric")
            self._hub.listen_at(address, tls, door, self._refused)
        have_read(parsers(self._events), self._events)

    def _refused(self, address: str, why: str) -> None:
        self._events.switch_refused(None, address, why)

    def _send_event(self, event: Any, state: Any) -> None:
        """Stands in for the package's, which has a queue of 128 events.

        An event is handled before the next message is read, so that none piles up here; one that a
        handler causes, once that has returned.
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
        for handler in self.get_handlers(event, state):
            try:
                handler(event)
            except Exception:  # of one switch, or of nobody: others go on
                LOG.exception("%s is not handled", type(event).__name__)

    def start(self) -> None:
        """Not the package's: nothing is in its queue of events."""
        self._hub.start(self)
        self._application.start()

    def stop(self) -> None:
        self._hub.close()  # first: this app's green threads are waited for before it is closed
        super().stop()

    def stopping(self) -> threading.Thread:
        """Thread that stops the application, for which the hub has to go on."""
        if self._stopping is None:
            self._stopping = threading.Thread(target=self._application.stop, name="stopping")
            self._stopping.start()
        return self._stopping

    def close(self) -> None:
        self._hub.wait_for(self.stopping())

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def _features(self, event: Any) -> None:
        datapath = event.msg.datapath
        datapath.hydra_connection = self._hub.connection_of(datapath)
        datapath.hydra_auxiliary = event.msg.auxiliary_id

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def _state_changed(self, event: Any) -> None:
        datapath = event.datapath
        if datapath.id is None:
            refused_for = getattr(datapath, "hydra_refused_for", None)
            if refused_for is not None:  # it did not tell its datapath id
                self._refused(seam.address_in_words(datapath.address), refused_for)
            return
        connection = datapath.hydra_connection
        if event.state == DEAD_DISPATCHER:
            connection.close()  # its reader may be waiting for a dead peer
            self._events.switch_disconnected(datapath.id, connection)
        elif datapath.hydra_auxiliary:
            connection.close()  # everything is said on the main connection
        else:
            self._hub.settle(datapath)
            if not self._events.knows(datapath.id):
                datapath.hydra_ignored = True
                self._hub.ignore(datapath)
            ports = {number: port_info(port) for number, port in datapath.ports.items()}
            self._events.switch_connected(datapath.id, connection, ports)

    @set_ev_cls(ofp_event.EventOFPEchoReply, MAIN_DISPATCHER)
    def _echo_reply(self, event: Any) -> None:
        event.msg.datapath.hydra_connection.answered(event.msg.xid)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def _port_status(self, event: Any) -> None:
        message = event.msg
        datapath, deleted = message.datapath, message.reason == ofproto_v1_3.OFPPR_DELETE
        self._events.port_changed(
            datapath.id, datapath.hydra_connection, port_info(message.desc), deleted=deleted
        )
