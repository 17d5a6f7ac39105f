#!/bin/bash
# Installs what the project needs and is missing: Debian packages, a virtual environment in .venv,
# and the project itself in it. Safe to repeat; a run that finds everything in place takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
STAMP=$VENV/.bootstrapped
# What the virtual environment is made from: when any of these changes, pip runs again.
INPUTS=(
  requirements.txt constraints.txt build-constraints.txt pyproject.toml setup.py
  scripts/bootstrap.sh topology/native/*.[ch]
)

# command that it brings -> Debian package; Mininet is on no Python package index
declare -A NEEDS=(
  [/usr/bin/mnexec]=mininet
  [/usr/sbin/ovs-vswitchd]=openvswitch-switch
  [/usr/bin/iperf3]=iperf3
  [/usr/sbin/ethtool]=ethtool
  [/bin/ping]=iputils-ping
  [/sbin/ip]=iproute2
  [/usr/bin/tcpdump]=tcpdump
  [/usr/bin/pgrep]=procps
  [/sbin/modprobe]=kmod
  [/usr/bin/make]=make
  [/usr/bin/python3]=python3
  [/usr/bin/gcc]=gcc
  [/usr/include/stdio.h]=libc6-dev
  [/usr/include/python3.11/Python.h]=python3-dev
  [/usr/lib/python3/dist-packages/mininet/node.py]=mininet
  [/usr/sbin/netconfd]=netconfd
  [/usr/sbin/sshd]=openssh-server
  [/usr/bin/ssh-keygen]=openssh-client
  [/usr/bin/yanglint]=libyang2-tools
  [/usr/bin/chromium]=chromium
  [/usr/sbin/slurmctld]=slurmctld
  [/usr/sbin/slurmd]=slurmd
  [/usr/bin/sbatch]=slurm-client
  [/usr/sbin/munged]=munge
  [/usr/bin/redis-server]=redis-server
  [/etc/ssl/certs/ca-certificates.crt]=ca-certificates
  [/usr/bin/systemd-analyze]=systemd
  [/usr/bin/mpirun.openmpi]=openmpi-bin
  ["/usr/lib/$(uname -m)-linux-gnu/openmpi/include/mpi.h"]=libopenmpi-dev
  [/usr/include/fftw3.h]=libfftw3-dev
  [/usr/include/fftw3-mpi.h]=libfftw3-mpi-dev
)

# daemon that only tests start -> its unit
declare -A ONLY_FOR_TESTS=(
  [/usr/sbin/sshd]=ssh.service
  [/usr/sbin/slurmctld]=slurmctld.service
  [/usr/sbin/slurmd]=slurmd.service
  [/usr/sbin/munged]=munge.service
  [/usr/bin/redis-server]=redis-server.service
)

say() { echo "bootstrap: $*"; }
fail() { echo "bootstrap: $*" >&2; exit 1; }

install_debian_packages() {
  local missing=() path
  for path in "${!NEEDS[@]}"; do
    [[ -e $path ]] || missing+=("${NEEDS[$path]}")
  done
  # ensurepip is its own package in Debian, and lives in a directory named after the version
  /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  ((${#missing[@]})) || return 0

  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  command -v apt-get >/dev/null ||
    fail "this is no Debian: install ${missing[*]} by other means, then run this again"
  ((EUID == 0)) || fail "${missing[*]} must be installed: run this as root"
  say "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # Tests start daemons of their own. Those for everybody are not ours to open: where there was
  # none, the package's must neither start now nor at the next boot.
  local new=() unit
  for path in "${!ONLY_FOR_TESTS[@]}"; do
    [[ -e $path ]] || new+=("${ONLY_FOR_TESTS[$path]}")
  done
  for unit in "${new[@]}"; do
    systemctl --quiet mask --runtime "$unit" 2>/dev/null || true
  done
  # Package lists may be absent (containers) or too old to match the archive any more.
  apt_install "${missing[@]}" ||
    { say "again, with fresh package lists" && apt-get -q update && apt_install "${missing[@]}"; } ||
    fail "apt-get could not install ${missing[*]}: its messages are above"
  command -v systemctl >/dev/null || return 0
  for unit in "${new[@]}"; do
    systemctl --quiet disable "$unit" 2>/dev/null || true
    systemctl --quiet unmask --runtime "$unit" 2>/dev/null || true
  done
}

apt_install() {
  apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends "$@"
}

fingerprint() {
  { /usr/bin/python3 --version; pwd; cat "${INPUTS[@]}"; } | sha256sum
}

make_virtual_environment() {
  /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "/usr/bin/python3 is $(/usr/bin/python3 --version): Debian 12's Python 3.11 is needed"
  say "making $VENV and installing requirements.txt (a minute or two)"
  rm -rf "$VENV"
  /usr/bin/python3 -m venv "$VENV"
  # pip hands PIP_CONSTRAINT on to the isolated environments that it builds packages in.
  export PIP_CONSTRAINT=$PWD/build-constraints.txt
  # constraints.txt has all of requirements.txt, and the hashes of every file.
  pip_install --require-hashes --requirement constraints.txt
  # Only Mininet comes from the system, so that no other Debian package shadows a pinned version.
  ln -sfn /usr/lib/python3/dist-packages/mininet \
    "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mininet"
  say "installing the project"
  pip_install --no-deps --editable .
  "$VENV/bin/python" -c 'import mininet.node, hydra, topology._native, drivers, apps' ||
    fail "the installed packages can't be imported: see above"
}

install_prometheus() {
  # Only its two programs, for tests of metrics and alerts: the package would start a daemon.
  [[ -x $VENV/bin/promtool && -x $VENV/bin/prometheus ]] && return
  local folder
  folder=$(mktemp -d)
  say "fetching Prometheus"
  (cd "$folder" && apt-get -q -o APT::Sandbox::User=root download prometheus) ||
    { apt-get -q update && (cd "$folder" && apt-get -q -o APT::Sandbox::User=root download prometheus); } ||
    fail "apt-get could not download prometheus: its messages are above"
  dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb |
    tar --extract --directory "$VENV" --strip-components 2 ./usr/bin/prometheus ./usr/bin/promtool
  rm -r "$folder"
}

pip_install() {
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --use-pep517 "$@" ||
    fail "pip could not install the above; is the network there? ($VENV is made anew next time)"
}

((EUID == 0)) || say "not root: the tests and the demo will need it"
install_debian_packages
wanted=$(fingerprint)
if [[ -f $STAMP && $(<"$STAMP") == "$wanted" ]]; then
  exit 0
fi
make_virtual_environment
install_prometheus
echo "$wanted" >"$STAMP"
say "done"
