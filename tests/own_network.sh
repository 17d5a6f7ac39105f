#!/bin/sh
# A Python with network, mounts, processes, Open vSwitch and journals of the shipped fabrics of its
# own: `make test` runs the tests that need Open vSwitch on several of these side by side
# (pytest-xdist's `--tx`).
umask 022
PATH=$PATH:/usr/sbin:/sbin
here=$(dirname "$0")
journals=$(sed -n 's#^ *journal: \(/var/tmp/.*\)/.*#\1#p' "$here"/../configs/*.yaml)

# Socket buffers are the machine's, and can't be raised from within: too small, Open vSwitch loses
# frames that no counter counts. They stay raised, for runs side by side; `make clean` sets them back.
before=
for wanted in rmem_max=8388608 rmem_default=8388608 wmem_max=8388608 wmem_default=8388608 \
  netdev_max_backlog=10000; do
  setting=/proc/sys/net/core/${wanted%=*}
  [ -e "$setting" ] && value=$(cat "$setting") && [ "$value" -lt "${wanted#*=}" ] || continue
  echo "${wanted#*=}" 2>/dev/null > "$setting" || continue
  before="$before${before:+, }\"net.core.${wanted%=*}\": $value"
done
if [ "$before" ] && [ ! -e /run/hydra-testbed/sysctl.json ]; then
  mkdir -p /run/hydra-testbed
  echo "{$before}" > /run/hydra-testbed/sysctl.json
fi

exec unshare --net --mount --pid --fork --kill-child --uts --ipc --mount-proc sh -c '
set -e
journals=$1
shift
mount --make-rprivate /
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/lock /run/openvswitch /run/netns
for directory in /etc/openvswitch /var/lib/openvswitch /var/log/openvswitch $journals; do
  mkdir -p "$directory"
  mount -t tmpfs none "$directory"
done
ip link set lo up
set +e
"$@"
exit $?  # not exec: the first process of a namespace has to collect the orphans
' sh "$journals" "$here/../.venv/bin/python" "$@"
