#!/bin/bash
# A lock of ovsdb-server that was stolen goes back to the robbed session when the thief's ends.
#
# Seen with ovsdb-server 3.1.0 (Debian's openvswitch-common 3.1.0-2+deb12u1); 3.5.0 and 4.0.0 do
# the same. RFC 7047, section 4.1.9, says that "steal" makes its caller the owner; of what follows
# when the caller's session ends, the RFC says nothing. ovsdb-server keeps the robbed session in
# the queue of the lock, in first place, and tells it "locked" again, unasked and at once, ahead of
# a third session that had waited by "lock" all the time. From then on, transactions of the robbed
# session that begin with "assert" are carried out.
#
# So a lock with "assert" does not keep out a process that was paused while another one took over.
# A "wait" (5.2.6) with time-out 0 for a value that the later one has written does.
#
# Output seen:
#   A locks: {"locked": true}
#   C locks: {"locked": false}
#   B steals: {"locked": true}
#   A is told: ["stolen", "locked"]
#   C is told: []
#   A's transaction with assert: [{}, {"count": 1}]
#   A's transaction with wait: "timed out"
#
# Exits 0 while ovsdb-server does so, 1 if it does something else. Needs apt-get, dpkg-deb and
# Python 3, and no root.
set -euo pipefail

version=3.1.0-2+deb12u1
place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$place"' EXIT
cd "$place"
apt-get download "openvswitch-common=$version" 2>/dev/null
dpkg-deb -x openvswitch-common_*.deb root

# A schema of one table is enough.
cat > schema <<'SCHEMA'
{"name": "Things", "version": "1.0.0",
 "tables": {"Thing": {"columns": {"name": {"type": "string"}, "owner": {"type": "string"}}}}}
SCHEMA
root/usr/bin/ovsdb-tool create things.db schema
root/usr/sbin/ovsdb-server --version | head -1
root/usr/sbin/ovsdb-server things.db --remote=punix:"$place/socket" --unixctl=none -vconsole:off &
server=$!

python3 - "$place/socket" <<'PYTHON'
import json
import socket
import sys
import time


class Session:
    """JSON-RPC by hand, so that nothing but the server's own behaviour is seen."""

    def __init__(self, path):
        until = time.monotonic() + 60
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        self.socket.settimeout(60)
        self.decoder, self.text, self.told = json.JSONDecoder(), "", []

    def call(self, method, *params):
        self.socket.sendall(json.dumps({"method": method, "params": params, "id": 1}).encode())
        while True:
            message = self.next()
            if message.get("method") is None:
                return message
            self.told.append(message["method"])

    def next(self):
        while True:
            try:
                message, end = self.decoder.raw_decode(self.text)
            except ValueError:
                self.text += self.socket.recv(65536).decode()
                continue
            self.text = self.text[end:].lstrip()
            return message


path = sys.argv[1]
a, b, c, d = (Session(path) for _ in range(4))
insert = {"op": "insert", "table": "Thing", "row": {"name": "x", "owner": "A"}}
a.call("transact", "Things", insert)
seen = []


def show(what, found):
    seen.append(found)
    print(f"{what}: {json.dumps(found)}")


show("A locks", a.call("lock", "l")["result"])
show("C locks", c.call("lock", "l")["result"])
show("B steals", b.call("steal", "l")["result"])
own = {"op": "update", "table": "Thing", "where": [], "row": {"owner": "B"}}
b.call("transact", "Things", own)
b.socket.close()
for _ in range(3):  # the server has seen the end of a session that ended before
    d.call("echo")
for one in (a, c):
    one.call("echo")
show("A is told", a.told)
show("C is told", c.told)
write = {"op": "update", "table": "Thing", "where": [], "row": {"name": "y"}}
show("A's transaction with assert",
     a.call("transact", "Things", {"op": "assert", "lock": "l"}, write)["result"])
wait = {"op": "wait", "timeout": 0, "table": "Thing", "where": [], "columns": ["owner"],
        "until": "==", "rows": [{"owner": "A"}]}
refused = a.call("transact", "Things", wait, write)["result"][0]["error"]
show("A's transaction with wait", refused)
expected = [{"locked": True}, {"locked": False}, {"locked": True}, ["stolen", "locked"], [],
            [{}, {"count": 1}], "timed out"]
sys.exit(seen != expected)
PYTHON
