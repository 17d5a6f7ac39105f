#!/bin/bash
# Runs a command in this project on another Debian: scripts/on_debian.sh 13 make demo
#
# 12, 13, 14, or a code name. The first time it builds a minimal root of that release with
# debootstrap, from the archive that this machine's apt uses (or MIRROR), in /var/tmp (or ROOTS).
# The project in it is a clone of the commit that is checked out here; what a run installs stays,
# for the next one. The kernel, the network and the testbed's lock are this machine's; packages,
# processes, /run and /dev/shm are the root's own. `scripts/on_debian.sh 13 --remove` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "on_debian: $*" >&2; exit 1; }
(($# >= 2)) || fail "say which Debian and which command: scripts/on_debian.sh 13 make demo"
declare -A CODE_NAMES=([12]=bookworm [13]=trixie [14]=forky)
release=${CODE_NAMES[$1]:-$1}
shift
((EUID == 0)) || fail "mounts and roots need root: run this as root"
root=${ROOTS:-/var/tmp}/hydra-debian-$release
if [[ $1 == --remove ]]; then
  exec rm -rf --one-file-system "$root"
fi

if [[ ! -e $root/etc/debian_version ]]; then
  echo "on_debian: building $root (a minute or two)" >&2
  PACKAGES=ca-certificates,git,make scripts/debian_root.sh "$release" "$root"
fi

commit=$(git rev-parse HEAD)
[[ -z $(git status --porcelain --untracked-files=no) ]] ||
  echo "on_debian: what is not committed is left out" >&2
[[ -d $root/hydra/.git ]] || git clone --quiet --no-checkout . "$root/hydra"
git -C "$root/hydra" fetch --quiet "$PWD" "$commit:refs/heads/as-here" --force --update-head-ok
git -C "$root/hydra" checkout --quiet --force -B as-here "$commit"

cp --dereference /etc/resolv.conf /etc/hosts "$root/etc/"
touch /run/lock/hydra-testbed.lock
export root

# pivot_root, as Mininet's mnexec enters mount namespaces, which a chroot does not follow.
exec unshare --mount --pid --fork --kill-child --propagation private bash -euc '
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
# Another one shows the interfaces of the network that it was mounted in.
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --bind /dev dev
mount --bind /dev/pts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
mkdir -p run/lock
touch run/lock/hydra-testbed.lock
mount --bind /run/lock/hydra-testbed.lock run/lock/hydra-testbed.lock
# Registries are reached as from here: with this machine'"'"'s authorities.
mount --bind /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ca-certificates.crt
mkdir -p mnt/old
pivot_root . mnt/old
umount --lazy /mnt/old
cd /hydra
set +e
env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  LANG=C.UTF-8 TERM="${TERM:-dumb}" PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
  ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
exit $?  # not exec: the first process of a namespace has to collect the orphans
' on_debian "$@"
