#!/bin/sh
# Holds a ring of four racks while a job runs that sends from each rank to the next.
# Usage: ring_job.sh HOSTS mpirun ./program; mpirun gets HOSTS in the order of the circuits.
set -eu
hosts=$1 ring=$(mktemp)
shift
trap 'rm "$ring"' EXIT
export hosts ring
hydra with-bandwidth --shape ring r1,r2,r3,r4 --mbps most --duration 1d -- sh -euc '
  hydra ranks --hosts "$hosts" >"$ring"
  mpirun=$1
  shift
  exec "$mpirun" --hostfile "$ring" "$@"' ring_job "$@"
