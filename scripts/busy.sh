#!/bin/bash
# busy.sh SECONDS [FOLDER]: keeps a machine busy, to run tests beside: two loops that compute, and one
# that writes to the disk of FOLDER (by default TMPDIR, or /tmp). It ends by itself after SECONDS, or
# when it is interrupted, and leaves no process and no file.
set -euo pipefail

usage() {
  echo "busy.sh: $1; usage: busy.sh SECONDS [FOLDER], SECONDS from 1 to 7200" >&2
  exit 2
}

SECONDS_LONG=${1:-}
FOLDER=${2:-${TMPDIR:-/tmp}}
[[ $SECONDS_LONG =~ ^[1-9][0-9]{0,3}$ && $SECONDS_LONG -le 7200 ]] ||
  usage "SECONDS is '$SECONDS_LONG'"
[[ -d $FOLDER && -w $FOLDER ]] || usage "FOLDER '$FOLDER' is not a folder to write to"

# Again and again: a child that is just being started loses a signal.
end() {
  trap '' INT TERM HUP
  while [[ -n $(jobs -pr) ]]; do
    kill $(jobs -pr) 2>/dev/null || true
    sleep 0.1
  done
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# The file has no name any more when it is written to: even SIGKILL leaves none behind.
file=$(mktemp "$FOLDER/busy.XXXXXX")
exec 3<>"$file"
rm "$file"

# Each child has an end of its own, should this process be killed.
for _ in 1 2; do
  bash -c 'while ((SECONDS < $1)); do :; done' busy "$SECONDS_LONG" 3>&- &
done
bash -c '
  while ((SECONDS < $1)); do dd if=/dev/zero of=/dev/fd/3 bs=1M count=64 conv=notrunc,fsync status=none; done
' busy "$SECONDS_LONG" &
wait
