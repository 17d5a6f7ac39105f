#!/bin/bash
# Open vSwitch's userspace datapath reorders frames of two ports if its thread was busy.
#
# Seen with ovs-vswitchd 3.1.0 (Debian's openvswitch-switch 3.1.0-2+deb12u1) on Linux 6.18. With
# datapath_type=netdev, the main thread reads the ports of type "system" in a fixed order, up to 32
# frames of each, and forwards the frames of one port before the thread reads the next port. Frames
# that arrive while the thread is busy leave in the order of the ports, not in the order of arrival.
# A flow that moves from one port of a switch to another port (a link of a bundle, a new circuit) is
# reordered at that moment, though no queue and no link reorders anything.
#
# The script stops the daemon for 20 ms to make the thread busy; a busy processor does the same.
#
# Output seen:
#   ovs-vswitchd (Open vSwitch) 3.1.0
#   idle thread: 40 of 40 pairs of frames left in the order of arrival
#   busy thread: 20 of 40 pairs of frames left in the order of arrival
#
# Exits 0 while a busy thread reorders frames, 1 otherwise. Needs root (a network namespace),
# apt-get, dpkg-deb, iproute2 and Python 3.
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

for pair in one other out; do
  ip link add $pair type veth peer name $pair-far
  echo 1 > /proc/sys/net/ipv6/conf/$pair/disable_ipv6
  echo 1 > /proc/sys/net/ipv6/conf/$pair-far/disable_ipv6
  ip link set $pair up
  ip link set $pair-far up
done
vsctl add-br b -- set bridge b datapath_type=netdev fail_mode=secure \
  -- add-port b one -- set interface one ofport_request=1 \
  -- add-port b other -- set interface other ofport_request=2 \
  -- add-port b out -- set interface out ofport_request=3
for port in 1 2; do
  root/usr/bin/ovs-ofctl add-flow "$OVS_RUNDIR/b.mgmt" in_port=$port,actions=output:3
done

python3 - "$(cat vs.pid)" <<'PYTHON'
import os
import signal
import socket
import sys
import time

DAEMON, ROUNDS = int(sys.argv[1]), 20


def opened(interface):
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
    made.bind((interface, 0x88B5))
    made.settimeout(10)
    return made


def in_order(first, second, busy):
    """Send a frame to one port and 1 ms later to another; True if they leave in this order."""
    if busy:
        os.kill(DAEMON, signal.SIGSTOP)
        time.sleep(0.01)
    for number, sender in enumerate((first, second)):
        sender.send(bytes.fromhex("020000000002" "020000000001" "88b5") + bytes([number]) * 60)
        time.sleep(0.001 if busy else 0.02)
    if busy:
        time.sleep(0.01)
        os.kill(DAEMON, signal.SIGCONT)
    return [receiver.recv(100)[20] for _ in range(2)] == [0, 1]


one, other, receiver = opened("one-far"), opened("other-far"), opened("out-far")
for sender in (one, other):  # the daemon decides the first frame of a flow apart
    sender.send(bytes.fromhex("020000000002" "020000000001" "88b5") + bytes(60))
    receiver.recv(100)
kept = {}
for busy in (False, True):
    orders = [(one, other), (other, one)] * ROUNDS
    kept[busy] = sum(in_order(*senders, busy) for senders in orders)
    name = "busy" if busy else "idle"
    print(f"{name} thread: {kept[busy]} of {2 * ROUNDS} pairs of frames left in the order of arrival")
sys.exit(not kept[False] > kept[True])
PYTHON
