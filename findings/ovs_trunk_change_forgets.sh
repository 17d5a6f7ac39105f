#!/bin/bash
# Open vSwitch forgets the addresses learned on a port when a VLAN joins or leaves the port, also on
# a VLAN that stays.
#
# Seen with ovs-vswitchd 3.1.0 (Debian's openvswitch-switch 3.1.0-2+deb12u1). A trunk port has learned
# an address on VLAN 10. `ovs-vsctl set port PORT trunks=10,20` adds VLAN 20, and VLAN 10 stays; yet the
# switch no longer knows the address on VLAN 10, and floods frames for that address (here: to a third
# port) until the host behind the port sends again. A host that only receives (a sink of UDP) is
# flooded for as long as the host is silent. The same happens when VLAN 20 leaves the port. Writing
# the same list again forgets nothing, and an address learned on another port stays.
#
# Output seen:
#   ovs-vswitchd (Open vSwitch) 3.1.0
#   learned on VLAN 10: trunk 1, other 1
#   same trunks written again: trunk 1, other 1
#   VLAN 20 added: trunk 0, other 1
#   learned again: trunk 1, other 1
#   VLAN 20 removed: trunk 0, other 1
#   frames for the silent host at a third port: at first 0 of 5, then 5 of 5, learned again 0 of 5
#
# Exits 0 while this is so, 1 otherwise. Needs root (a network namespace), apt-get, dpkg-deb,
# iproute2 and Python 3.
set -euo pipefail

if [ "${1:-}" != inside ]; then
  version=3.1.0-2+deb12u1
  place=$(mktemp -d)
  trap 'rm -rf "$place"' EXIT
  cd "$place"
  apt-get download "openvswitch-common=$version" "openvswitch-switch=$version" > /dev/null 2>&1
  for package in openvswitch-*.deb; do
    dpkg-deb -x "$package" root
  done
  cd - > /dev/null
  unshare --net --pid --fork --kill-child --mount-proc bash "$0" inside "$place"
  exit
fi

cd "$2"
export OVS_RUNDIR=$2 OVS_LOGDIR=$2 OVS_DBDIR=$2 OVS_SYSCONFDIR=$2
vsctl() { root/usr/bin/ovs-vsctl --db="unix:$OVS_RUNDIR/db.sock" "$@"; }
root/usr/bin/ovsdb-tool create conf.db root/usr/share/openvswitch/vswitch.ovsschema
root/usr/sbin/ovsdb-server conf.db --remote=punix:db.sock --unixctl=none --detach --pidfile=db.pid \
  -vconsole:off
vsctl --no-wait init
root/usr/lib/openvswitch-switch/ovs-vswitchd "unix:$OVS_RUNDIR/db.sock" --unixctl="$OVS_RUNDIR/ctl" \
  --detach --pidfile=vs.pid -vconsole:off --log-file=/dev/null
root/usr/lib/openvswitch-switch/ovs-vswitchd --version | head -1

for port in trunk other third; do
  ip link add $port type veth peer name $port-far
  echo 1 > /proc/sys/net/ipv6/conf/$port/disable_ipv6
  echo 1 > /proc/sys/net/ipv6/conf/$port-far/disable_ipv6
  ip link set $port up
  ip link set $port-far up
done
vsctl add-br b -- set bridge b datapath_type=netdev \
  -- add-port b trunk trunks=10 -- add-port b other trunks=10 -- add-port b third trunks=10

python3 - <<'PYTHON'
import os
import select
import socket
import subprocess
import sys
import time

TRUNK, OTHER = "020000000001", "020000000002"
DB = f"unix:{os.environ['OVS_RUNDIR']}/db.sock"


def opened(interface):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind((interface, 3))
    made.settimeout(1)
    return made


def frame(src, dst):
    return bytes.fromhex(dst + src + "8100" "000a" "88b5") + bytes(60)


def learned():
    command = ["root/usr/bin/ovs-appctl", "--target", f"{os.environ['OVS_RUNDIR']}/ctl"]
    table = subprocess.run([*command, "fdb/show", "b"], check=True, capture_output=True, text=True)
    text = table.stdout.replace(":", "")
    return text.count(TRUNK), text.count(OTHER)


def learn():
    """Have both hosts send until the switch knows where the hosts are."""
    deadline = time.monotonic() + 30
    while learned() != (1, 1) and time.monotonic() < deadline:
        trunk.send(frame(TRUNK, "ffffffffffff"))
        other.send(frame(OTHER, "ffffffffffff"))
        time.sleep(0.1)
    while third.recv(200):  # the hosts' own broadcasts
        if not select.select([third], [], [], 0.2)[0]:
            return learned()


def tagged(trunks):
    vsctl = ["root/usr/bin/ovs-vsctl", f"--db={DB}", "set", "port", "trunk", f"trunks={trunks}"]
    subprocess.run(vsctl, check=True)  # returns when the daemon has carried it out
    return learned()


def flooded():
    """Of five frames for the host behind the trunk, those that come out at the third port."""
    seen = 0
    for _ in range(5):
        other.send(frame(OTHER, TRUNK))
        time.sleep(0.1)
        third.setblocking(False)
        try:
            while True:
                seen += third.recv(200)[:6] == bytes.fromhex(TRUNK)
        except BlockingIOError:
            pass
    return seen


trunk, other, third = opened("trunk-far"), opened("other-far"), opened("third-far")
print("learned on VLAN 10: trunk {}, other {}".format(*(first := learn())))
flooded_at = [flooded()]
print("same trunks written again: trunk {}, other {}".format(*(same := tagged("10"))))
print("VLAN 20 added: trunk {}, other {}".format(*(added := tagged("10,20"))))
flooded_at.append(flooded())
print("learned again: trunk {}, other {}".format(*(again := learn())))
flooded_at.append(flooded())
print("VLAN 20 removed: trunk {}, other {}".format(*(removed := tagged("10"))))
counts = "at first {} of 5, then {} of 5, learned again {} of 5".format(*flooded_at)
print(f"frames for the silent host at a third port: {counts}")
states = first, same, added, again, removed
expected = (1, 1), (1, 1), (0, 1), (1, 1), (0, 1)
sys.exit(not (states == expected and flooded_at == [0, 5, 0]))
PYTHON
