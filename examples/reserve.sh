#!/bin/sh
# Reserves 20 Mb/s from a server to a rack with curl, and gives them back when the command ends.
set -eu
url=${HYDRA_URL:-http://127.0.0.1:8080}/v1/reservations
answer=$(curl --silent --show-error --fail-with-body "$url" \
  --header 'Content-Type: application/json' --header 'Prefer: wait=30' \
  --data '{"src": "h31", "dst": "r4", "bandwidth_mbps": 20, "duration_s": 600}') ||
  { echo "$answer" >&2; exit 1; }
id=$(echo "$answer" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
trap 'curl --silent --output /dev/null --request DELETE --header "Prefer: wait=30" "$url/$id"' EXIT
echo "reservation $id is there"
"${@:-true}"
