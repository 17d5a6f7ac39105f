#!/bin/sh
# Reserves 20 Mb/s from a server to a rack with curl, and gives them back when the command ends.
set -eu
url=${HYDRA_URL:-http://127.0.0.1:8080}/v1/reservations
token=${HYDRA_TOKEN:-$(cat "${HYDRA_TOKEN_FILE:-/dev/null}")}
auth=${token:+header = "\"Authorization: Bearer $token\""}
ask() { echo "$auth" | curl --config - --silent ${HYDRA_CA:+--cacert "$HYDRA_CA"} "$@"; }
answer=$(ask --show-error --fail-with-body "$url" \
  --header 'Content-Type: application/json' --header 'Prefer: wait=30' \
  --data '{"src": "h31", "dst": "r4", "bandwidth_mbps": 20, "duration_s": 600}') ||
  { echo "$answer" >&2; exit 1; }
id=$(echo "$answer" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
trap 'ask --output /dev/null --request DELETE --header "Prefer: wait=30" "$url/$id"' EXIT
echo "reservation $id is there"
"${@:-true}"
