#!/bin/sh
# A Python with network, mounts, processes and Open vSwitch of its own: `make test` runs the tests
# that need Open vSwitch on several of these side by side (pytest-xdist's `--tx`).
umask 022
PATH=$PATH:/usr/sbin:/sbin
exec unshare --net --mount --pid --fork --kill-child --uts --ipc --mount-proc sh -c '
set -e
mount --make-rprivate /
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/lock /run/openvswitch /run/netns /etc/openvswitch /var/lib/openvswitch /var/log/openvswitch
for directory in /etc/openvswitch /var/lib/openvswitch /var/log/openvswitch; do
  mount -t tmpfs none "$directory"
done
ip link set lo up
set +e
"$@"
exit $?  # not exec: the first process of a namespace has to collect the orphans
' sh "$(dirname "$0")/../.venv/bin/python" "$@"
