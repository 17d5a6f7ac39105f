#!/bin/bash
# ofport_request of Open vSwitch renumbers ports that nobody has touched: at once a port that has
# requested nothing, and at the next restart a port whose number somebody else has requested, too.
#
# Seen with ovs-vswitchd 3.1.0 (Debian's openvswitch-switch 3.1.0-2+deb12u1) on Linux 6.18. Three
# ports: p1 with number 1 and p2 with number 2, both as requested, and p3 with number 3, by itself.
# 1. p1 requests 3: p1 gets 3, and p3 moves on to 4, so that rules for port 3 now send to p1.
# 2. p1 requests 1 again, and then p2 requests 1 as well: both keep their numbers, and no log line
#    or column tells of the conflict. When ovs-vswitchd is restarted on the same database, the two
#    have swapped their numbers. A later restart changes nothing.
# A controller that was away meanwhile finds rules that name the wrong port of the two.
#
# Output seen:
#   ovs-vswitchd (Open vSwitch) 3.1.0
#   at first:                      p1=1 p2=2 p3=3
#   p1 requests 3:                 p1=3 p2=2 p3=4
#   p1 requests 1:                 p1=1 p2=2 p3=4
#   p2 requests 1, too:            p1=1 p2=2 p3=4
#   ovs-vswitchd restarted:        p1=2 p2=1 p3=4
#   ovs-vswitchd restarted again:  p1=2 p2=1 p3=4
#
# Exits 0 while the numbers are these, 1 otherwise. Needs root (a network namespace), apt-get,
# dpkg-deb and iproute2.
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
start_switch() {
  root/usr/lib/openvswitch-switch/ovs-vswitchd "unix:$OVS_RUNDIR/db.sock" \
    --unixctl="$OVS_RUNDIR/ctl" --detach --pidfile=vs.pid -vconsole:off --log-file=/dev/null
}
restart_switch() {
  process=$(cat vs.pid)
  kill "$process"
  while kill -0 "$process" 2> /dev/null; do sleep 0.1; done
  start_switch
  # ovs-vsctl waits until the new process has carried out a change.
  vsctl --timeout=30 set bridge b other-config:restarts="$1"
}
numbers=()
show() {
  local found
  found=$(for port in p1 p2 p3; do echo -n "$port=$(vsctl get interface $port ofport) "; done)
  printf '%-30s %s\n' "$1" "${found% }"
  numbers+=("${found% }")
}

root/usr/bin/ovsdb-tool create conf.db root/usr/share/openvswitch/vswitch.ovsschema
root/usr/sbin/ovsdb-server conf.db --remote=punix:db.sock --unixctl=none --detach --pidfile=db.pid \
  -vconsole:off
vsctl --no-wait init
start_switch
root/usr/lib/openvswitch-switch/ovs-vswitchd --version | head -1
for port in p1 p2 p3; do
  ip link add $port type veth peer name $port-far
  ip link set $port up
done
vsctl add-br b -- set bridge b datapath_type=netdev fail_mode=secure \
  -- add-port b p1 -- set interface p1 ofport_request=1 \
  -- add-port b p2 -- set interface p2 ofport_request=2
vsctl add-port b p3

show "at first:"
vsctl set interface p1 ofport_request=3
show "p1 requests 3:"
vsctl set interface p1 ofport_request=1
show "p1 requests 1:"
vsctl set interface p2 ofport_request=1
show "p2 requests 1, too:"
restart_switch 1
show "ovs-vswitchd restarted:"
restart_switch 2
show "ovs-vswitchd restarted again:"

seen=("p1=1 p2=2 p3=3" "p1=3 p2=2 p3=4" "p1=1 p2=2 p3=4" "p1=1 p2=2 p3=4" "p1=2 p2=1 p3=4"
  "p1=2 p2=1 p3=4")
[ "${numbers[*]}" = "${seen[*]}" ]
