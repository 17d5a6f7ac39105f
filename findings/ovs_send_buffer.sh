#!/bin/bash
# Open vSwitch's userspace datapath loses frames at a slow port, and no counter counts the loss.
#
# Seen with ovs-vswitchd 3.1.0 (Debian's openvswitch-switch 3.1.0-2+deb12u1) on Linux 6.18. With
# datapath_type=netdev, all ports of type "system" send through one AF_PACKET socket. A frame that
# waits in a port's queueing discipline stays charged to the send buffer of the socket, which has
# the size of net.core.wmem_default, 212,992 bytes by default. Once the frames that wait at any slow
# ports fill the buffer, the socket refuses the next frame, for whichever port. The queue has room
# for more, so it counts no drop; the interface's tx_dropped, the statistics in the database, the
# counters of OpenFlow's ports and the counters of coverage/show stay as if nothing were lost.
# Who looks for a queue's drops in order to tell congestion from a fault finds neither.
#
# A larger net.core.wmem_default helps, if it is set before ovs-vswitchd sends its first frame. The
# setting can't be changed within a network namespace.
#
# Output seen:
#   ovs-vswitchd (Open vSwitch) 3.1.0
#   frames taken from the fast port: 1000
#   frames that left the slow port: 231
#   drops of the queue (limit 2,000,000 bytes): 0
#   tx_dropped of the interface: 0, in the database: 0, in OpenFlow: 0
#   counters of coverage/show that have "drop" in their names: none
#
# Exits 0 while frames are lost uncounted, 1 otherwise, 2 if net.core.wmem_default is raised. Needs
# root (a network namespace), apt-get, dpkg-deb, iproute2 and Python 3.
set -euo pipefail

if [ "${1:-}" != inside ]; then
  if [ "$(cat /proc/sys/net/core/wmem_default)" -ge 1000000 ]; then
    echo "net.core.wmem_default is raised: set it to the kernel's default, 212992" >&2
    exit 2
  fi
  version=3.1.0-2+deb12u1
  place=$(mktemp -d)
  trap 'rm -rf "$place"' EXIT
  cd "$place"
  apt-get download "openvswitch-common=$version" "openvswitch-switch=$version" > /dev/null 2>&1
  for package in openvswitch-*.deb; do
    dpkg-deb -x "$package" root
  done
  cd - > /dev/null
  unshare --net --pid --fork --kill-child bash "$0" inside "$place"
  exit
fi

cd "$2"
export OVS_RUNDIR=$2 OVS_LOGDIR=$2 OVS_DBDIR=$2 OVS_SYSCONFDIR=$2
vsctl() { root/usr/bin/ovs-vsctl --db="unix:$OVS_RUNDIR/db.sock" "$@"; }
root/usr/bin/ovsdb-tool create conf.db root/usr/share/openvswitch/vswitch.ovsschema
root/usr/sbin/ovsdb-server conf.db --remote=punix:db.sock --unixctl=none --detach --pidfile=db.pid \
  -vconsole:off
vsctl --no-wait init
root/usr/lib/openvswitch-switch/ovs-vswitchd "unix:$OVS_RUNDIR/db.sock" --unixctl="$OVS_RUNDIR/ctl" --detach \
  --pidfile=vs.pid -vconsole:off --log-file=/dev/null
root/usr/lib/openvswitch-switch/ovs-vswitchd --version | head -1

for pair in fast slow; do
  ip link add $pair type veth peer name $pair-far
  ip link set $pair up
  ip link set $pair-far up
  echo 1 > /proc/sys/net/ipv6/conf/$pair-far/disable_ipv6
done
vsctl add-br b -- set bridge b datapath_type=netdev fail_mode=secure \
  -- add-port b fast -- set interface fast ofport_request=1 \
  -- add-port b slow -- set interface slow ofport_request=2
tc qdisc replace dev slow root tbf rate 10mbit burst 3000 limit 2000000
root/usr/bin/ovs-ofctl add-flow "$OVS_RUNDIR/b.mgmt" in_port=1,actions=output:2

python3 - <<'PYTHON'
import json
import os
import re
import socket
import subprocess
import sys
import time

FRAMES = 1000
place = os.environ["OVS_RUNDIR"]


def run(command):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


def passed():
    """Frames that the two ports of the bridge have counted: in at the fast, out at the slow."""
    ports = run(f"root/usr/bin/ovs-ofctl dump-ports {place}/b.mgmt")
    taken = int(re.search(r"port +(?:1|fast): rx pkts=(\d+)", ports)[1])
    left = re.search(r"port +(?:2|slow):.*?tx pkts=(\d+), bytes=\d+, drop=(\d+)", ports, re.S)
    return taken, int(left[1]), int(left[2])


with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
    sender.bind(("fast-far", 0))
    frame = bytes.fromhex("020000000002" "020000000001" "88b5") + bytes(1400)
    before = passed()
    for number in range(FRAMES):
        sender.send(frame)
        if number % 20 == 0:
            time.sleep(0.002)  # 100 Mb/s: the bridge reads all of it

queue, seen = None, None
while queue is None or queue["backlog"] or seen != passed():
    seen = passed()
    time.sleep(1)
    queue = json.loads(run("tc -s -j qdisc show dev slow"))[0]

taken, left, of_dropped = (after - start for after, start in zip(passed(), before))
dropped = json.loads(run("ip -s -j link show slow"))[0]["stats64"]["tx"]["dropped"]
vsctl = f"root/usr/bin/ovs-vsctl --db=unix:{place}/db.sock"
time.sleep(6)  # statistics come into the database every 5 s
in_database = int(run(f"{vsctl} get interface slow statistics:tx_dropped"))
covered = run(f"root/usr/bin/ovs-appctl -t {place}/ctl coverage/show")
named = [one for one in re.findall(r"^(\S*drop\S*)", covered, re.M) if "pipeline" not in one]
print(f"frames taken from the fast port: {taken}")
print(f"frames that left the slow port: {left}")
print(f"drops of the queue (limit 2,000,000 bytes): {queue['drops']}")
print(
    f"tx_dropped of the interface: {dropped}, in the database: {in_database}, "
    f"in OpenFlow: {of_dropped}"
)
print(f'counters of coverage/show that have "drop" in their names: {", ".join(named) or "none"}')
lost = taken - left
sys.exit(not (lost > 0 == queue["drops"] == dropped == in_database == of_dropped and not named))
PYTHON
