#!/bin/sh
# httpx-sse hands out an event that nobody sent, for a comment after an event with an id.
#
# Version: httpx-sse 0.4.3 with httpx 0.28.1, on Python 3.11; reported to its authors as issue 35.
# Behaviour: once an `id` was seen, each blank line gives a ServerSentEvent, also the blank line that
#   ends a comment alone. Its data is "", its name "message". The standard says that a block without
#   data is no event (HTML, 9.2.6, "dispatch the event", step 2).
# Consequence: a reader that parses each event's data as JSON fails at the first sign of life.
# Output seen:
#   [('circuit-up', '7', '{}'), ('message', '7', ''), ('message', '7', '')]
#
# Exits with 0 as long as that is so.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check httpx==0.28.1 httpx-sse==0.4.3
"$folder/venv/bin/python" - <<'PROGRAM'
import sys

import httpx
from httpx_sse import EventSource

STREAM = b": ping\n\nevent: circuit-up\nid: 7\ndata: {}\n\n: ping\n\n: ping\n\n"
response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=STREAM)
events = [(one.event, one.id, one.data) for one in EventSource(response).iter_sse()]
print(events)
expected = [("circuit-up", "7", "{}"), ("message", "7", ""), ("message", "7", "")]
sys.exit(events != expected)
PROGRAM
