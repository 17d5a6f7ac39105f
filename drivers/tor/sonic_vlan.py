"""SONiC switches over gNMI: VLANs and their members in the configuration database.

As with ``sonic-ocs``, the configuration holds intentions: the state database shows the results of
vlanmgrd.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from drivers.codecs import sonic_vlans
from drivers.codecs.sonic_vlans import Member
from drivers.codecs.yang_json import YangJsonError
from drivers.exclusive import exclusive
from drivers.looks import looks
from drivers.skipped_rows import SkippedRows
from drivers.tor import membership
from drivers.tor.session import SessionTor
from drivers.transports import gnmi_session
from drivers.transports.gnmi import GnmiDatabases
from drivers.transports.gnmi_session import GnmiRefusal
from drivers.transports.tls import TlsOptions
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login, Rack, VlanId
from hydra.roles import PortVlans, TorCapabilities, TorSwitch

CAPABILITIES: Final = TorCapabilities(bulk=True)

_SLOWEST_POLL_S: Final = 0.5


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. Raises DeviceError without a login."""
    if rack.tor.login is None:
        raise DeviceError(rack.name, "SONiC wants a login")
    options = TlsOptions.model_validate(dict(rack.tor.options))
    return SonicTor(rack.name, rack.tor.address, rack.tor.login, options, timeout_s=timeout_s)


check: Final = gnmi_session.tor_problems


class SonicTor(SessionTor):
    """A :class:`~hydra.roles.TorSwitch`.

    Other clients can write rows, too. An invalid row fails the reading of the port that the row
    names; other invalid rows are logged and ignored.

    All ports of a change go in one Set, which is atomic. The Set makes missing VLANs, which stay.
    ``timeout_s`` covers one exchange, and the time until the state database shows the configured
    membership.
    """

    CAPABILITIES = CAPABILITIES

    def __init__(
        self, name: str, address: str, login: Login, options: TlsOptions, *, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._databases = GnmiDatabases(
            name, address, login, options, timeout_s=timeout_s, subscribes_to_alarms=False
        )
        self._skipped_rows = SkippedRows(name)
        super().__init__(name, self._databases)

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """Ports in the configuration, in order of number."""
        listed = self._databases.read(sonic_vlans.PORTS)
        return tuple(sorted(listed, key=sonic_vlans.port_number))

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as configured."""
        if not ports:
            return {}
        self._check_ports(ports)
        tagged: dict[str, set[VlanId]] = defaultdict(set)
        native: dict[str, VlanId] = {}
        for member, untagged in self._members(ports).items():
            if not untagged:
                tagged[member.port].add(VlanId(member.vlan))
            elif native.setdefault(member.port, VlanId(member.vlan)) != member.vlan:
                raise ProtocolError(self._name, f"port {member.port} is untagged in two VLANs")
        return {port: PortVlans(frozenset(tagged[port]), native.get(port)) for port in ports}

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of the given ports in one Set, and wait for the state database.

        Raises DeviceError (nothing written) for a bad VLAN or a port missing on the switch.
        """
        membership.check_memberships(self._name, wanted)
        present = self.vlans(wanted)
        changed = {port: vlans for port, vlans in wanted.items() if present[port] != vlans}
        if not changed:
            return
        before = {m: untagged for port in changed for m, untagged in _of(port, present[port])}
        after = {m: untagged for port in changed for m, untagged in _of(port, changed[port])}
        vlans = self._databases.read(sonic_vlans.VLANS).keys()
        new = {m.vlan for m in after if sonic_vlans.vlan_key(m.vlan) not in vlans}
        self._databases.write_tables(
            {
                sonic_vlans.VLANS: (
                    [],
                    {sonic_vlans.vlan_key(v): sonic_vlans.vlan_fields(v) for v in sorted(new)},
                ),
                sonic_vlans.MEMBERS: (
                    [sonic_vlans.member_key(m) for m in sorted(before.keys() - after.keys())],
                    {
                        sonic_vlans.member_key(m): sonic_vlans.member_fields(untagged=untagged)
                        for m, untagged in sorted(after.items())
                        if before.get(m) != untagged
                    },
                ),
            }
        )
        try:
            membership.check_result(self._name, changed, self.vlans(changed))
            self._wait_for_state(changed.keys(), after.keys())
        except (DeviceUnavailable, ProtocolError, GnmiRefusal) as error:
            raise OutcomeUnknown(
                self._name, f"VLANs were written and not confirmed: {error}; read the device back"
            ) from error

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True for each port that is up, by the state database."""
        if not ports:
            return {}
        self._check_ports(ports)
        states = self._databases.read(sonic_vlans.PORT_STATES)
        return {p: states.get(p, {}).get("netdev_oper_status") == "up" for p in ports}

    def _check_ports(self, ports: Collection[str]) -> None:
        missing = sorted(set(ports) - self._databases.read(sonic_vlans.PORTS).keys())
        if missing:
            raise DeviceError(self._name, f"the switch has no port {', '.join(missing)}")

    def _members(self, ports: Collection[str]) -> dict[Member, bool]:
        """VLAN members at the given ports; True: untagged."""
        rows = self._databases.read(sonic_vlans.MEMBERS)
        keys = self._keys_of("members of VLANs", rows, ports)
        try:
            return {m: sonic_vlans.is_untagged(key, rows[key]) for m, key in keys.items()}
        except YangJsonError as error:
            raise ProtocolError(self._name, str(error)) from error

    def _keys_of(
        self, table: str, rows: Collection[str], ports: Collection[str]
    ) -> dict[Member, str]:
        """Keys of the rows about the given ports. Raises ProtocolError for an invalid row among
        these.
        """
        found: dict[Member, str] = {}
        odd: dict[str, str] = {}
        for key in rows:
            try:
                member = sonic_vlans.parse_member(key)
            except YangJsonError as error:
                if key.rpartition("|")[2] in ports:
                    raise ProtocolError(self._name, str(error)) from error
                odd[key] = str(error)
            else:
                if member.port in ports:
                    found[member] = key
        self._skipped_rows.note(table, odd)
        return found

    def _wait_for_state(self, ports: Collection[str], wanted: Collection[Member]) -> None:
        """Raises DeviceError if the switch does not carry out the ports' configuration."""
        for _ in looks(self._timeout_s, _SLOWEST_POLL_S):
            rows = self._databases.read(sonic_vlans.MEMBER_STATES)
            made = self._keys_of("members of VLANs by state", rows, ports)
            differing = made.keys() ^ set(wanted)
            if not differing:
                return
        first = min(differing)
        raise DeviceError(
            self._name,
            f"port {first.port} is configured as asked, and the switch has not carried the "
            f"configuration out: VLAN {first.vlan} and {len(differing) - 1} more; see its system "
            "log",
        )


def _of(port: str, vlans: PortVlans) -> Iterator[tuple[Member, bool]]:
    """A port's membership as members of VLANs; True: untagged."""
    for vlan in vlans.tagged:
        yield Member(vlan, port), False
    if vlans.native is not None:
        yield Member(vlans.native, port), True
