"""SONiC databases over gNMI: Get, Set and Subscribe, with TLS, user and password.

Paths have the origin ``sonic-db``: database, ``localhost``, table, key (SONiC's gNMI server
interface design). The server answers NOT_FOUND about a table without rows, and whatever it can't
read in Redis. It makes a JSON patch of each Set, for the generic config updater, which refuses a
patch that adds below a table without rows, or leaves one (sonic-net/sonic-gnmi,
``mixed_db_client.go``; sonic-net/sonic-utilities, ``generic_updater.py``).

Packages for gRPC and its messages are the extra ``sonic``; they are imported when a device is
connected, so that those without such a device need not have them.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, TypeVar

from drivers.codecs import sonic_ocs
from drivers.codecs.sonic_ocs import Fields, Rows, Table
from drivers.codecs.yang_json import MAX_JSON_BYTES, YangJsonError
from drivers.credentials import secret
from drivers.transports.tls import NOT_TRUSTED, TlsOptions, authorities
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login

_log: Final = logging.getLogger(__name__)
MISSING: Final = (
    "gNMI wants the packages of the extra sonic: pip install 'hydra-hybrid-network[sonic]', or set "
    "options.transport to restconf"
)
_NEEDS: Final = ("grpc", "pygnmi")
_ORIGIN: Final = "sonic-db"
_HOST: Final = "localhost"
_MESSAGES: Final = "pygnmi.spec.v080.gnmi_pb2"
_STUBS: Final = "pygnmi.spec.v080.gnmi_pb2_grpc"
_LOST: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL"})
"""Status codes by which a call may have failed on its way back; others are the server's refusal."""
_MOST_REPORTS: Final = 10_000
_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0
"""Between attempts to subscribe to alarms, where the device refuses that or ends it."""

_T = TypeVar("_T")
_Message: TypeAlias = Any
"""One of gNMI's messages, or their module: they have no types."""


def installed() -> bool:
    """True if the packages of the extra are there."""
    return all(find_spec(name) is not None for name in _NEEDS)


class GnmiDatabases:
    """:class:`~drivers.transports.sonic_databases.SonicDatabases` over one gRPC channel.

    A channel that the device closed, after a silence for one, is opened again by the next read.
    ``timeout_s`` covers one call. Not for several threads at once.
    """

    def __init__(
        self,
        device: str,
        address: str,
        login: Login,
        options: TlsOptions,
        *,
        timeout_s: float,
        hears_alarms: bool = True,
    ) -> None:
        self._hears_alarms = hears_alarms
        self._device = device
        self._address = address
        self._login = login
        self._options = options
        self._timeout_s = timeout_s
        self._channel: Any = None
        self._stub: Any = None
        self._metadata: tuple[tuple[str, str], ...] = ()
        self._listener: _Listener | None = None

    def open(self) -> None:
        if self._channel is not None and not (self._listener and self._listener.lost):
            return
        self.close()
        if not installed():
            raise DeviceError(self._device, MISSING)
        grpc = import_module("grpc")
        self._metadata = (
            ("username", self._login.username),
            ("password", secret(self._device, self._login)),
        )
        settings: list[tuple[str, str | int]] = [
            ("grpc.use_local_subchannel_pool", 1),  # no other device's pauses between attempts
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", MAX_JSON_BYTES),
        ]
        if self._options.server_name is not None:
            settings.append(("grpc.ssl_target_name_override", self._options.server_name))
        roots = authorities(self._device, self._options)
        trusted = grpc.ssl_channel_credentials(None if roots is None else roots.encode("latin-1"))
        deadline = time.monotonic() + self._timeout_s
        self._channel = grpc.secure_channel(self._address, trusted, settings)
        self._stub = import_module(_STUBS).gNMIStub(self._channel)
        try:
            self._call(self._stub.Capabilities, self._messages().CapabilityRequest())
        except _CallLost as error:
            self.close()
            hint = NOT_TRUSTED if re.search("handshake|Hostname", str(error)) else ""
            raise DeviceUnavailable(self._device, f"can't connect to {error}{hint}") from error
        except _CallRefused as error:
            self.close()
            raise DeviceError(self._device, str(error)) from error
        if not self._hears_alarms:
            return
        self._listener = _Listener(self._device, self._subscribe)
        self._listener.wait_until_synchronised(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._stub = None

    def read(self, table: Table) -> Rows:
        rows = self._found(table)
        if rows is not None:
            return rows
        if table is sonic_ocs.METADATA or self._found(sonic_ocs.METADATA) is None:
            raise DeviceUnavailable(
                self._device,
                f"{self._address} finds neither {table.name} nor {sonic_ocs.METADATA.name}, which "
                "is never empty: look after the switch's Redis",
            )
        return self._found(table) or {}  # an error that has passed is no empty table

    def _found(self, table: Table) -> Rows | None:
        """Rows of a table; None if the server finds none, or can't read its databases."""
        request = self._messages().GetRequest(path=[self._path(table)], encoding="JSON_IETF")
        again = self._channel is not None
        while True:
            self.open()
            try:
                answer = self._call(self._stub.Get, request)
                break
            except _CallLost as error:
                self.close()
                # A connection that the device gave up while nobody used it.
                if not (again and error.code == "UNAVAILABLE"):
                    raise DeviceUnavailable(self._device, str(error)) from error
                again = False
            except _CallRefused as error:
                if error.code == "NOT_FOUND":
                    return None
                raise DeviceError(self._device, str(error)) from error
        return self._rows(
            table, (update for notice in answer.notification for update in notice.update)
        )

    def write(self, delete: Collection[str], add: Rows) -> None:
        self.write_tables({sonic_ocs.CROSS_CONNECTS: (delete, add)})

    def write_tables(self, changes: Mapping[Table, tuple[Collection[str], Rows]]) -> None:
        """In each of these tables, delete rows by their keys, then add others, all in one request.

        A table's first rows are written, and its last ones deleted, with the whole table.
        """
        deletions: list[_Message] = []
        updates: list[tuple[_Message, Fields | Rows]] = []
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
        request = self._set_request(deletions, updates)
        self.open()
        try:
            self._call(self._stub.Set, request)
        except _CallLost as error:
            self.close()
            raise OutcomeUnknown(
                self._device, f"a change was sent and not confirmed: {error}; read the device back"
            ) from error
        except _CallRefused as error:
            raise DeviceError(self._device, str(error)) from error

    def heard_alarms(self) -> tuple[tuple[str, Rows | None], ...]:
        heard: list[tuple[str, Rows | None]] = []
        for kind, path, text in self._listener.take() if self._listener else ():
            key = path[-1] if path else ""
            if kind == "ended":
                heard.append((key, None))
                continue
            rows: dict[str, dict[str, str]] = {}
            with suppress(YangJsonError):  # a read of the table will say so
                sonic_ocs.place(rows, path, text)
            # The server tells of a row that was deleted as of one without fields.
            heard += [(key, {key: fields} if fields else None) for key, fields in rows.items()]
        return tuple(heard)

    # --- calls ----------------------------------------------------------------------------------

    def _messages(self) -> _Message:
        if not installed():
            raise DeviceError(self._device, MISSING)
        return import_module(_MESSAGES)

    def _path(self, table: Table, *key: str) -> _Message:
        messages = self._messages()
        names = (table.database, _HOST, table.name, *key)
        elements = [messages.PathElem(name=name) for name in names]
        return messages.Path(origin=_ORIGIN, elem=elements)

    def _set_request(
        self, delete: Iterable[_Message], update: Iterable[tuple[_Message, Fields | Rows]]
    ) -> _Message:
        """A Set of these paths, and of others with their values."""
        messages = self._messages()
        updates = [
            messages.Update(
                path=path, val=messages.TypedValue(json_ietf_val=sonic_ocs.value_text(value))
            )
            for path, value in update
        ]
        return messages.SetRequest(delete=delete, update=updates)

    def _call(self, method: Callable[..., _T], request: object) -> _T:
        grpc = import_module("grpc")
        try:
            return method(request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            code, told = error.code().name, error.details() or ""
            if code == "DEADLINE_EXCEEDED":
                told = f"no answer within {self._timeout_s:g} s"
            if code in _LOST:
                raise _CallLost(code, f"{self._address}: {told or code}") from error
            if code == "UNAUTHENTICATED":
                told = f"does not let {self._login.username} in; check login"
            raise _CallRefused(code, f"the switch refuses ({code}): {told}") from error
        except ValueError as error:  # the channel was closed meanwhile
            raise _CallLost("UNAVAILABLE", f"{self._address}: {error}") from error

    def _rows(self, table: Table, updates: Iterable[Any]) -> Rows:
        rows: dict[str, dict[str, str]] = {}
        for update in updates:
            try:
                path = _below(table, update.path)
                sonic_ocs.place(rows, path, update.val.json_ietf_val or update.val.json_val)
            except YangJsonError as error:
                raise ProtocolError(self._device, f"{table.name}: {error}") from error
        return rows

    def _subscribe(self, over: threading.Event) -> _Message:
        """A stream of changes of the table of alarms, which ends no earlier than ``over``."""
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
        return self._stub.Subscribe(_one_and_wait(request, over), metadata=self._metadata)


class _CallLost(Exception):
    """No answer, or one that leaves open what was done."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class _CallRefused(Exception):
    """The server's answer: it has not done it."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class _Listener:
    """Takes down what a subscription tells, in a thread of its own.

    A subscription that the device refuses, or ends, is asked for again after ever longer pauses:
    a SONiC without the alarm framework does so, and one whose framework has yet to start. The log
    tells it once.
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
        self._told: deque[tuple[str, tuple[str, ...], bytes]] = deque(maxlen=_MOST_REPORTS)
        self._begun = False
        """True once the stream has told of the alarms that stood before it."""
        self._synchronised = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="gnmi alarms", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """True if the connection was lost; a device without alarms does not count."""
        return not self._thread.is_alive()

    def wait_until_synchronised(self, timeout_s: float) -> None:
        """Return when alarms that stood before have been told, or it is known that none will be."""
        self._synchronised.wait(timeout_s)

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            self._over.set()
            self._stream.cancel()
        self._thread.join()

    def take(self) -> Iterator[tuple[str, tuple[str, ...], bytes]]:
        """Changes told so far: ``began`` or ``ended``, path below the table, and value."""
        while self._told:
            yield self._told.popleft()

    def _listen(self) -> None:
        pause_s, told = self._first_pause_s, False
        while True:
            since_s = time.monotonic()
            why = self._follow()
            if why is None or self._stopped.is_set():
                return
            if time.monotonic() - since_s > _LONGEST_PAUSE_S:
                pause_s, told = self._first_pause_s, False
            if not told:
                _log.warning(
                    "%s tells no alarms of its own accord (%s): it is asked again from time to "
                    "time, and its table of alarms is read meanwhile",
                    self._device,
                    why,
                )
            told = True
            if self._stopped.wait(pause_s) or not self._subscribe_again():
                return
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _subscribe_again(self) -> bool:
        """False if there is nobody to tell any more, or no channel."""
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
        """Take down what the stream tells; why it ended, or None if the connection was lost."""
        grpc = import_module("grpc")
        self._begun = False
        try:
            for answer in self._stream:
                if answer.sync_response:
                    self._begun = True
                    self._synchronised.set()
                self._take_down(answer.update)
        except grpc.RpcError as error:
            code, told = error.code().name, error.details() or ""
            return None if code in _LOST else f"{code}: {told}"
        finally:
            self._over.set()
            self._synchronised.set()
        return "it ended the subscription"

    def _take_down(self, notice: _Message) -> None:
        # Those that stood before the session are read, not reported.
        if not self._begun:
            return
        with suppress(YangJsonError):
            for path in notice.delete:
                self._told.append(("ended", _below(sonic_ocs.ALARMS, path), b""))
            for update in notice.update:
                text = update.val.json_ietf_val or update.val.json_val
                self._told.append(("began", _below(sonic_ocs.ALARMS, update.path), text))


def _below(table: Table, path: _Message) -> tuple[str, ...]:
    """Part of a path that follows the table's name."""
    names = tuple(element.name for element in path.elem)
    if table.name not in names:
        raise YangJsonError(f"an answer about {'/'.join(names)[:60]!r}")
    return names[names.index(table.name) + 1 :]


def _one_and_wait(request: object, over: threading.Event) -> Iterator[object]:
    """The one request of a stream, whose sending side stays open until it is over."""
    yield request
    over.wait()
