#!/bin/bash
# Each change of a meter in Open vSwitch lets a whole burst pass again, also a change to the same
# rate.
#
# Seen with ovs-vswitchd 3.1.0 (Debian's openvswitch-switch 3.1.0-2+deb12u1) on Linux 6.18. OFPMC_MODIFY
# replaces the meter in the datapath by a new one: its bucket is full, and its counters of bands begin
# at 0 again. A controller that adjusts the meters of several senders once a second, with a sum that
# stays, lets more pass than the sum: the burst of each meter at each change. OpenFlow 1.3.5 does not
# say what becomes of a bucket when a meter is modified.
#
# Here a meter has 1,000 kb/s and a burst of 200 kb, and is offered 8,000 kb/s for 4 seconds, first
# without changes, then with ten changes to the very same rate and burst.
#
# Output seen (kilobits vary by 1 to 2 %):
#   ovs-vswitchd (Open vSwitch) 3.1.0
#   without changes: 4192 kb passed
#   with 10 changes to the same rate: 5980 kb passed
#   bits of the bucket that each change gave back: 179 kb of 200
#
# Exits 0 while a change gives back at least half a burst, 1 otherwise. Needs root (a network
# namespace), apt-get, dpkg-deb, iproute2 and Python 3.
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

for pair in in out; do
  ip link add $pair type veth peer name $pair-far
  echo 1 > /proc/sys/net/ipv6/conf/$pair/disable_ipv6
  echo 1 > /proc/sys/net/ipv6/conf/$pair-far/disable_ipv6
  ip link set $pair up
  ip link set $pair-far up
done
vsctl add-br b -- set bridge b datapath_type=netdev fail_mode=secure protocols=OpenFlow13 \
  -- add-port b in -- set interface in ofport_request=1 \
  -- add-port b out -- set interface out ofport_request=2

python3 - "$OVS_RUNDIR/b.mgmt" <<'PYTHON'
import socket
import subprocess
import sys
import time

RATE_KBPS, BURST_KB, OFFERED_KBPS, SECONDS, CHANGES = 1000, 200, 8000, 4, 10
FRAME_BYTES = 1000
METER = f"meter=1,kbps,burst,band=type=drop,rate={RATE_KBPS},burst_size={BURST_KB}"


def ofctl(command, *words):
    program = "root/usr/bin/ovs-ofctl"
    subprocess.run([program, "-O", "OpenFlow13", command, sys.argv[1], *words], check=True)


def opened(interface):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
    made.bind((interface, 0x88B5))
    made.setblocking(False)
    return made


def passed_kb(changes):
    """What leaves by port 2 while port 1 is offered too much, with so many changes of the meter."""
    due = [(number + 1) * SECONDS / (changes + 1) for number in range(changes)]
    frame = bytes.fromhex("020000000002" "020000000001" "88b5").ljust(FRAME_BYTES, b"\0")
    sent, frames, began = 0, 0, time.monotonic()
    while (now := time.monotonic() - began) < SECONDS:
        while sent * FRAME_BYTES * 8 / 1000 < OFFERED_KBPS * now:
            sender.send(frame)
            sent += 1
        if due and due[0] <= now:
            due.pop(0)
            ofctl("mod-meter", METER)
        frames += taken()
        time.sleep(0.001)
    time.sleep(0.2)
    return (frames + taken()) * FRAME_BYTES * 8 / 1000


def taken():
    frames = 0
    try:
        while receiver.recv(2000):
            frames += 1
    except BlockingIOError:
        return frames


sender, receiver = opened("in-far"), opened("out-far")
ofctl("add-meter", METER)
ofctl("add-flow", "in_port=1,actions=meter:1,output:2")
time.sleep(0.5)
still = passed_kb(0)
time.sleep(1)  # the bucket fills
changed = passed_kb(CHANGES)
print(f"without changes: {still:.0f} kb passed")
print(f"with {CHANGES} changes to the same rate: {changed:.0f} kb passed")
given = (changed - still) / CHANGES
print(f"bits of the bucket that each change gave back: {given:.0f} kb of {BURST_KB}")
sys.exit(not given > BURST_KB / 2)
PYTHON
