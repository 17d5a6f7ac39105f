"""SONiC databases over gNMI: Get, Set and Subscribe.

Paths have the origin ``sonic-db``: database, ``localhost``, table, key (SONiC's gNMI server
interface design). The server answers NOT_FOUND about a table without rows, and also if it can't
read Redis. The server makes a JSON patch of each Set, for the generic config updater, which refuses
a patch that adds below a table without rows, or empties a table row by row (sonic-net/sonic-gnmi,
``mixed_db_client.go``; sonic-net/sonic-utilities, ``generic_updater.py``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from drivers.codecs import sonic_ocs
from drivers.codecs.sonic_ocs import Fields, Rows, Table
from drivers.codecs.yang_json import YangJsonError
from drivers.transports.gnmi_session import LOST, GnmiSession, Message
from drivers.transports.tls import TlsOptions
from hydra.errors import DeviceUnavailable, ProtocolError
from hydra.model import Login

_log: Final = logging.getLogger(__name__)
_ORIGIN: Final = "sonic-db"
_HOST: Final = "localhost"
_MOST_REPORTS: Final = 10_000
_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0
"""Longest pause between attempts to subscribe to alarms, if the device refuses or ends
subscriptions.
"""


class GnmiDatabases(GnmiSession):
    """:class:`~drivers.transports.sonic_databases.SonicDatabases` over one gRPC channel."""

    def __init__(
        self,
        device: str,
        address: str,
        login: Login,
        options: TlsOptions,
        *,
        timeout_s: float,
        subscribes_to_alarms: bool = True,
    ) -> None:
        super().__init__(device, address, login, options, timeout_s=timeout_s)
        self._subscribes_to_alarms = subscribes_to_alarms
        self._listener: _Listener | None = None

    def open(self) -> None:
        if self._channel is not None and not (self._listener and self._listener.lost):
            return
        self.close()
        deadline = time.monotonic() + self._timeout_s
        super().open()
        if not self._subscribes_to_alarms:
            return
        self._listener = _Listener(self._device, self._subscribe)
        self._listener.wait_until_synchronised(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        super().close()

    def read(self, table: Table) -> Rows:
        rows = self._found(table)
        if rows is not None:
            return rows
        if table is sonic_ocs.METADATA or self._found(sonic_ocs.METADATA) is None:
            raise DeviceUnavailable(
                self._device,
                f"{self._address} finds neither {table.name} nor {sonic_ocs.METADATA.name}, the "
                "latter never empty: check the switch's Redis",
            )
        return self._found(table) or {}  # a passed error is no empty table

    def _found(self, table: Table) -> Rows | None:
        """Rows of a table; None if the server finds none, or can't read its databases."""
        found = self.get([self._path(table)], "JSON_IETF")
        return None if found is None else self._rows(table, (update for _, update in found))

    def write(self, delete: Collection[str], add: Rows) -> None:
        self.write_tables({sonic_ocs.CROSS_CONNECTS: (delete, add)})

    def write_tables(self, changes: Mapping[Table, tuple[Collection[str], Rows]]) -> None:
        """In each of the given tables, delete rows by their keys, then add rows, all in one
        request.

        A table's first rows are written, and its last rows deleted, with the whole table.
        """
        deletions: list[Message] = []
        updates: list[tuple[Message, Fields | Rows]] = []
        for table, (delete, add) in changes.items():
            present = self.read(table).keys()
            if not present:
                updates += [(self._path(table), add)] if add else []
            elif add or present - set(delete):
                deletions += [self._path(table, key) for key in delete]
                updates += [(self._path(table, key), fields) for key, fields in add.items()]
            else:
                deletions.append(self._path(table))
        if not (deletions or updates):
            return
        self.set(self._set_request(deletions, updates))

    def received_alarms(self) -> tuple[tuple[str, Rows | None], ...]:
        received: list[tuple[str, Rows | None]] = []
        for kind, path, text in self._listener.take() if self._listener else ():
            key = path[-1] if path else ""
            if kind == "ended":
                received.append((key, None))
                continue
            rows: dict[str, dict[str, str]] = {}
            with suppress(YangJsonError):  # a read of the table will show the outcome
                sonic_ocs.place(rows, path, text)
            # The server reports a deleted row as a row without fields.
            received += [(key, {key: fields} if fields else None) for key, fields in rows.items()]
        return tuple(received)

    # --- messages -------------------------------------------------------------------------------

    def _path(self, table: Table, *key: str) -> Message:
        messages = self._messages()
        names = (table.database, _HOST, table.name, *key)
        elements = [messages.PathElem(name=name) for name in names]
        return messages.Path(origin=_ORIGIN, elem=elements)

    def _set_request(
        self, delete: Iterable[Message], update: Iterable[tuple[Message, Fields | Rows]]
    ) -> Message:
        """A Set that deletes paths, and updates paths with values."""
        messages = self._messages()
        updates = [
            messages.Update(
                path=path, val=messages.TypedValue(json_ietf_val=sonic_ocs.value_text(value))
            )
            for path, value in update
        ]
        return messages.SetRequest(delete=delete, update=updates)

    def _rows(self, table: Table, updates: Iterable[Any]) -> Rows:
        rows: dict[str, dict[str, str]] = {}
        for update in updates:
            try:
                path = _below(table, update.path)
                sonic_ocs.place(rows, path, update.val.json_ietf_val or update.val.json_val)
            except YangJsonError as error:
                raise ProtocolError(self._device, f"{table.name}: {error}") from error
        return rows

    def _subscribe(self, over: threading.Event) -> Message:
        """A stream of changes of the table of alarms, kept open until ``over``."""
        messages = self._messages()
        request = messages.SubscribeRequest(
            subscribe=messages.SubscriptionList(
                subscription=[
                    messages.Subscription(path=self._path(sonic_ocs.ALARMS), mode="ON_CHANGE")
                ],
                mode="STREAM",
                encoding="JSON_IETF",
            )
        )
        return self.subscribe(_request_until(request, over))


class _Listener:
    """Records a subscription's messages, in a thread of its own.

    A subscription that the device refuses, or ends, is retried after ever longer pauses: the device
    may be a SONiC without the alarm framework, or with a framework that has yet to start. The log
    has one line about the missing alarms.
    """

    def __init__(
        self,
        device: str,
        subscribe: Callable[[threading.Event], Any],
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        """``subscribe`` returns a stream, and keeps its sending side open until an event is set."""
        self._device = device
        self._subscribe = subscribe
        self._first_pause_s = first_pause_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._stream = subscribe(self._over)
        self._reports: deque[tuple[str, tuple[str, ...], bytes]] = deque(maxlen=_MOST_REPORTS)
        self._begun = False
        """True once the stream has reported all alarms from before the session."""
        self._synchronised = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="gnmi alarms", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """True if the connection was lost; a device without alarms does not count."""
        return not self._thread.is_alive()

    def wait_until_synchronised(self, timeout_s: float) -> None:
        """Return when all earlier alarms have been reported, or the stream reports none."""
        self._synchronised.wait(timeout_s)

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            self._over.set()
            self._stream.cancel()
        self._thread.join()

    def take(self) -> Iterator[tuple[str, tuple[str, ...], bytes]]:
        """Changes reported so far: ``began`` or ``ended``, path below the table, and value."""
        while self._reports:
            yield self._reports.popleft()

    def _listen(self) -> None:
        pause_s, logged = self._first_pause_s, False
        while True:
            since_s = time.monotonic()
            why = self._follow()
            if why is None or self._stopped.is_set():
                return
            if time.monotonic() - since_s > _LONGEST_PAUSE_S:
                pause_s, logged = self._first_pause_s, False
            if not logged:
                _log.warning(
                    "%s does not report alarms (%s): the subscription is tried again from time to "
                    "time, and the table of alarms is polled meanwhile",
                    self._device,
                    why,
                )
            logged = True
            if self._stopped.wait(pause_s) or not self._subscribe_again():
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _subscribe_again(self) -> bool:
        """False if the listener was stopped, or the channel closed."""
        with self._lock:
            if self._stopped.is_set():
                return False
            self._over = threading.Event()
            try:
                self._stream = self._subscribe(self._over)
            except ValueError:  # the channel was closed
                return False
            return True

    def _follow(self) -> str | None:
        """Record the stream's messages; return why it ended, or None if the connection was lost."""
        grpc = import_module("grpc")
        self._begun = False
        try:
            for answer in self._stream:
                if answer.sync_response:
                    self._begun = True
                    self._synchronised.set()
                self._take_down(answer.update)
        except grpc.RpcError as error:
            code, explanation = error.code().name, error.details() or ""
            return None if code in LOST else f"{code}: {explanation}"
        finally:
            self._over.set()
            self._synchronised.set()
        return "the device ended the subscription"

    def _take_down(self, notice: Message) -> None:
        # Alarms from before the session are read, not reported.
        if not self._begun:
            return
        with suppress(YangJsonError):
            for path in notice.delete:
                self._reports.append(("ended", _below(sonic_ocs.ALARMS, path), b""))
            for update in notice.update:
                text = update.val.json_ietf_val or update.val.json_val
                self._reports.append(("began", _below(sonic_ocs.ALARMS, update.path), text))


def _below(table: Table, path: Message) -> tuple[str, ...]:
    """Part of a path after the table's name."""
    names = tuple(element.name for element in path.elem)
    if table.name not in names:
        raise YangJsonError(f"an answer about {'/'.join(names)[:60]!r}")
    return names[names.index(table.name) + 1 :]


def _request_until(request: object, over: threading.Event) -> Iterator[object]:
    """Yield a stream's single request, and keep the sending side open until ``over``."""
    yield request
    over.wait()
