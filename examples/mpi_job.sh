#!/bin/sh
# Reserves 2 Mb/s for each two ranks on different racks, runs the job, and gives all of it back.
# Usage: mpi_job.sh mpirun --hostfile HOSTS ./program
set -eu
hosts=$(mktemp)
trap 'rm "$hosts"' EXIT
printf '%s slots=1\n' h11 h21 h31 >"$hosts"
hydra mpirun --hosts "$hosts" --pattern ring --mbps 2 -- "$@"
