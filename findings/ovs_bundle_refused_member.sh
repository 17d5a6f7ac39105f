#!/bin/bash
# An atomic OpenFlow bundle commits without the member that Open vSwitch refused to take in.
#
# Seen with ovs-vswitchd 3.1.0 (Debian's openvswitch-switch 3.1.0-2+deb12u1), OpenFlow 1.4. A rule
# with an action that the switch does not know is refused when the rule is added to the bundle
# (OFPT_BUNDLE_ADD_MESSAGE): the switch answers an error, and the bundle stays open without that
# rule. A commit (flag OFPBF_ATOMIC) that was sent behind the refused message succeeds, and the other
# members are in the table. A member that fails at the commit itself (a full table) does undo the
# whole bundle.
#
# A controller that sends a whole bundle in one go and takes any error for "the switch has changed
# nothing" is wrong about half of the bundle: such a controller has to read the switch's table, or
# has to wait for the answers before the commit.
#
# Output seen:
#   ovs-vswitchd (Open vSwitch) 3.1.0
#   errors: [('bundle member', 'type 2, code 0')]
#   reply to the commit: True
#   rules in the table: ['in_port=1 actions=output:2', 'in_port=3 actions=output:2']
#
# Exits 0 while the commit succeeds without its member, 1 otherwise. Needs root (a network
# namespace), apt-get, dpkg-deb and Python 3.
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
vsctl add-br b -- set bridge b datapath_type=netdev fail_mode=secure protocols=OpenFlow14

python3 - "$OVS_RUNDIR/b.mgmt" <<'PYTHON'
import re
import socket
import struct
import subprocess
import sys

VERSION = 5  # OpenFlow 1.4
HELLO, ERROR, FLOW_MOD, BUNDLE_CONTROL, BUNDLE_ADD = 0, 1, 14, 33, 34
OPEN, COMMIT, COMMITTED, ATOMIC = 0, 4, 5, 1
OUTPUT, UNKNOWN = 0, 99


def message(kind, body, xid):
    return struct.pack("!BBHI", VERSION, kind, 8 + len(body), xid) + body


def rule(in_port, action, xid):
    """A rule of table 0 with one action of 16 bytes."""
    actions = struct.pack("!HHIH6x", action, 16, 2, 0)
    match = struct.pack("!HHIIxxxx", 1, 12, 0x80000004, in_port)
    instruction = struct.pack("!HH4x", 4, 8 + len(actions)) + actions
    head = struct.pack("!QQBBHHHIIIHH", 0, 0, 0, 0, 0, 0, 1000, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0)
    return message(FLOW_MOD, head + match + instruction, xid)


def control(kind, xid):
    return message(BUNDLE_CONTROL, struct.pack("!IHH", 1, kind, ATOMIC), xid)


def member(inner, xid):
    return message(BUNDLE_ADD, struct.pack("!IxxH", 1, ATOMIC) + inner, xid)


def received(connection, stream):
    head = stream.read(8)
    _, kind, length, xid = struct.unpack("!BBHI", head)
    return kind, xid, stream.read(length - 8)


connection = socket.socket(socket.AF_UNIX)
connection.settimeout(10)
connection.connect(sys.argv[1])
stream = connection.makefile("rb")
connection.sendall(
    message(HELLO, b"", 1)
    + control(OPEN, 2)
    + member(rule(1, OUTPUT, 3), 3)
    + member(rule(2, UNKNOWN, 4), 4)
    + member(rule(3, OUTPUT, 5), 5)
    + control(COMMIT, 6)
)
names = {3: "bundle member", 4: "bundle member", 5: "bundle member", 6: "commit"}
errors, committed = [], False
while True:
    kind, xid, body = received(connection, stream)
    if kind == ERROR:
        errors.append((names[xid], "type %d, code %d" % struct.unpack("!HH", body[:4])))
    if kind == BUNDLE_CONTROL and struct.unpack("!IH", body[:6])[1] == COMMITTED:
        committed = True
    if xid == 6:
        break
dump = ["root/usr/bin/ovs-ofctl", "-O", "OpenFlow14", "dump-flows", sys.argv[1]]
shown = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
rules = sorted(re.findall(r"in_port=\S+ actions=\S+", shown))
print("errors:", errors)
print("reply to the commit:", committed)
print("rules in the table:", rules)
sys.exit(not (errors and committed and len(rules) == 2))
PYTHON
