#!/bin/bash
# Installs what is missing: Debian packages, a virtual environment in .venv, and the project itself
# in it. `bootstrap.sh demo` installs what the emulated fabric and the controller need,
# `bootstrap.sh` what tests and documents need besides. Safe to repeat; a run that finds everything
# in place takes no time.
set -euo pipefail
cd "$(dirname "$0")/.."

PURPOSE=${1:-test}
VENV=.venv
BEFORE=$VENV.before
STAMP=$VENV/.bootstrapped
# What the virtual environment is made from: when any of these changes, it is made anew.
PACKAGES=(requirements.txt constraints.txt build-constraints.txt scripts/bootstrap.sh)
# What the project is built from: when only these change, pip installs the project alone.
PROJECT=(
  pyproject.toml setup.py topology/native/*.[ch] apps/openflow/native/*.[ch]
  drivers/codecs/openflow/native/*.[ch]
)
OLDEST=11
NEWEST=14

# file that it brings -> package, or packages of other releases, of which apt takes the first that it
# knows; Mininet is on no Python package index
declare -A NEEDS=(
  [/usr/bin/mnexec]=mininet
  [/usr/sbin/ovs-vswitchd]=openvswitch-switch
  [/usr/bin/iperf3]=iperf3
  [/usr/sbin/ethtool]=ethtool
  [/bin/ping]=iputils-ping
  [/sbin/ip]=iproute2
  [/usr/bin/pgrep]=procps
  [/sbin/modprobe]=kmod
  [/usr/bin/make]=make
  [/usr/bin/python3]=python3
  [/usr/bin/gcc]=gcc
  [/usr/include/stdio.h]=libc6-dev
  [/usr/lib/python3/dist-packages/mininet/node.py]=mininet
  [/etc/ssl/certs/ca-certificates.crt]=ca-certificates
)

declare -A TESTS_NEED=(
  [/usr/bin/tcpdump]=tcpdump
  [/usr/bin/curl]=curl
  [/usr/bin/wrk]=wrk
  [/usr/sbin/netconfd]=netconfd
  [/usr/sbin/sshd]=openssh-server
  [/usr/bin/ssh-keygen]=openssh-client
  [/usr/bin/yanglint]="libyang2-tools libyang3-tools libyang-tools"
  [/usr/bin/chromium-headless-shell]=chromium-headless-shell
  [/usr/sbin/slurmctld]=slurmctld
  [/usr/sbin/slurmd]=slurmd
  [/usr/bin/sbatch]=slurm-client
  [/usr/sbin/munged]=munge
  [/usr/bin/redis-server]=redis-server
  [/usr/bin/etcd]=etcd-server
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
  [/usr/bin/etcd]=etcd.service
)

SYSTEMD=/run/systemd/system # is there while systemd runs
SERVICE_POLICY=/usr/sbin/policy-rc.d

WITHOUT_ROOT='tests without Open vSwitch run by: .venv/bin/python -m pytest -m "not ovs"'

say() { echo "bootstrap: $*"; }
fail() { echo "bootstrap: $*" >&2; exit 1; }

[[ $PURPOSE == demo || $PURPOSE == test ]] ||
  fail "what for? \"demo\" or \"test\", not \"$PURPOSE\""

install_debian_packages() {
  local missing=() path
  if [[ $PURPOSE == test ]]; then
    for path in "${!TESTS_NEED[@]}"; do
      NEEDS[$path]=${TESTS_NEED[$path]}
    done
  fi
  for path in "${!NEEDS[@]}"; do
    [[ -e $path ]] || missing+=("${NEEDS[$path]}")
  done
  # Both lie in directories named after the version.
  /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  [[ -e $(python_headers) ]] || missing+=(python3-dev)
  ((${#missing[@]})) || return 0

  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  command -v apt-get >/dev/null ||
    fail "this is no Debian: install ${missing[*]} by other means, then run this again"
  ((EUID == 0)) ||
    fail "${missing[*]} must be installed: run \"make bootstrap\" as root once; then $WITHOUT_ROOT"
  say "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # Tests start daemons of their own. Those for everybody are not ours to open: where there was
  # none, the package's must neither start now nor at the next boot.
  for path in "${!ONLY_FOR_TESTS[@]}"; do
    [[ $PURPOSE == demo || -e $path ]] || NEW_UNITS+=("${ONLY_FOR_TESTS[$path]}")
  done
  keep_services_back
  # Package lists may be absent (containers) or too old to match the archive any more.
  apt_install "${missing[@]}" ||
    { say "again, with fresh package lists" && apt-get -q update && apt_install "${missing[@]}"; } ||
    fail "apt-get could not install ${missing[*]}: its messages are above"
  let_services_be
}

NEW_UNITS=()
POLICY_IS_OURS=

# Until let_services_be, which also comes when this script ends in the middle (Ctrl-C, SIGTERM).
# Without systemd, packages start their daemons by init scripts, which a mask does not keep back.
keep_services_back() {
  local unit
  trap let_services_be EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  for unit in "${NEW_UNITS[@]}"; do
    systemctl --quiet mask --runtime "$unit" 2>/dev/null || true
  done
  if [[ ! -d $SYSTEMD && ! -e $SERVICE_POLICY ]]; then
    POLICY_IS_OURS=1
    printf '#!/bin/sh\nexit 101\n' >"$SERVICE_POLICY"
    chmod +x "$SERVICE_POLICY"
  fi
}

let_services_be() {
  local unit
  trap '' HUP INT TERM # nothing comes in between
  [[ -z $POLICY_IS_OURS ]] || rm -f "$SERVICE_POLICY"
  for unit in "${NEW_UNITS[@]}"; do
    systemctl --quiet disable "$unit" 2>/dev/null || true
    systemctl --quiet unmask --runtime "$unit" 2>/dev/null || true
  done
  trap - EXIT HUP INT TERM
}

python_headers() {
  /usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null
}

# Installs packages; of "a b", the one that this release has.
apt_install() {
  local wanted=() alternatives
  for alternatives in "$@"; do
    wanted+=("$(known $alternatives)")
  done
  apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends "${wanted[@]}" 9<&- # a daemon would keep the turn
}

# The first of these packages that apt can install; the last, for apt to complain of, if none.
known() {
  local package
  for package in "$@"; do
    (($# > 1)) || break
    [[ -z $(apt-cache --names-only search "^$package\$" 2>/dev/null) ]] || break
  done
  echo "$package"
}

fingerprint() {
  { /usr/bin/python3 --version; pwd; cat "$@"; } | sha256sum
}

make_virtual_environment() {
  /usr/bin/python3 -c "import sys; sys.exit(not (3, $OLDEST) <= sys.version_info[:2] <= (3, $NEWEST))" ||
    fail "/usr/bin/python3 is $(/usr/bin/python3 --version): 3.$OLDEST to 3.$NEWEST is needed"
  say "making $VENV and installing requirements.txt (a minute, or several on a busy machine)"
  set_aside
  /usr/bin/python3 -m venv "$VENV"
  install_packages demo
  # Only Mininet comes from the system, so that no other Debian package shadows a pinned version.
  ln -sfn /usr/lib/python3/dist-packages/mininet \
    "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/mininet"
  install_project
  trap - EXIT HUP INT TERM
  rm -rf "$BEFORE"/.bootstrapped "$BEFORE" # in this order: one that is cut off is whole no more
}

install_project() {
  say "installing the project"
  pip_install --no-deps --editable .
  # The last four are compiled here, so that the first command and the first plan need not wait.
  "$VENV/bin/python" -c 'import mininet.node, topology._native, apps.openflow._lines, drivers.codecs.openflow._tables, apps.cli, apps.controller.controller, apps.planning.planner_process, scipy.optimize' ||
    fail "the installed packages can't be imported: see above"
}

# Paths inside a virtual environment are absolute: the new one is made in its place, and the one
# before comes back unless that succeeds.
set_aside() {
  trap put_back EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  [[ ! -d $VENV ]] || mv -T "$VENV" "$BEFORE"
}

put_back() {
  trap '' HUP INT TERM
  if [[ -d $BEFORE ]]; then
    rm -rf "$VENV"
    mv -T "$BEFORE" "$VENV"
  fi
}

# One run at a time in a clone.
take_turn() {
  exec 9<scripts/bootstrap.sh
  flock --nonblock 9 || { say "waiting for another bootstrap of this clone" && flock 9; }
}

# constraints.txt has all of requirements.txt, and the hashes of every file; tests' come last.
install_packages() {
  if [[ $1 == demo ]]; then
    sed '/^# What tests/,$d' constraints.txt
  else
    cat constraints.txt
  fi >"$VENV/constraints.txt"
  pip_install --require-hashes --requirement "$VENV/constraints.txt"
}

install_prometheus() {
  # Only its two programs, for tests of metrics and alerts: the package would start a daemon.
  [[ -x $VENV/bin/promtool && -x $VENV/bin/prometheus ]] && return
  local folder archive packages=(prometheus)
  # Debian 12 has both programs in one package.
  [[ $(known promtool prometheus) == prometheus ]] || packages+=(promtool)
  folder=$(mktemp -d)
  say "fetching Prometheus"
  (cd "$folder" && apt-get -q -o APT::Sandbox::User=root download "${packages[@]}") ||
    { apt-get -q update &&
      (cd "$folder" && apt-get -q -o APT::Sandbox::User=root download "${packages[@]}"); } ||
    fail "apt-get could not download ${packages[*]}: its messages are above"
  for archive in "$folder"/*.deb; do
    dpkg-deb --fsys-tarfile "$archive" |
      tar --extract --directory "$VENV" --strip-components 2 --wildcards './usr/bin/prom*'
  done
  rm -r "$folder"
}

pip_install() {
  # Python compiles a module at its first import: compiling all modules here takes a third of the
  # time. Building Ryu needs an old setuptools; pip 25.3 has a name of its own for that. Where a
  # path has spaces pip takes it for several, and this directory's may.
  PIP_CONSTRAINT=build-constraints.txt PIP_BUILD_CONSTRAINT=build-constraints.txt \
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --use-pep517 \
    "$@" ||
    fail "pip could not install the above; is the network there?"
}

bring_up_to_date() {
  local packages project there= has= built=
  packages=$(fingerprint "${PACKAGES[@]}")
  project=$(fingerprint "${PROJECT[@]}")
  [[ ! -f $STAMP ]] || { read -r there; read -r has; read -r built; } <"$STAMP" || true
  if [[ $there != "$packages" ]]; then
    make_virtual_environment
  elif [[ $built != "$project" ]]; then
    install_project
  elif [[ $has == "$PURPOSE" || $has == test ]]; then
    return
  fi
  if [[ $PURPOSE == test || $has == test ]]; then
    if [[ $there != "$packages" || $has != test ]]; then
      say "installing what tests need besides"
      install_packages test
      install_prometheus
    fi
    PURPOSE=test
  fi
  printf '%s\n%s\n%s\n' "$packages" "$PURPOSE" "$project" >"$STAMP"
  say "done"
}

((EUID == 0)) || say "you are not root, and Open vSwitch and Mininet need root; $WITHOUT_ROOT"
take_turn
put_back # where a run was killed
trap - HUP INT TERM
install_debian_packages
bring_up_to_date
