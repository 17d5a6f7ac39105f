#!/bin/bash
# Builds the controller's container image by podman: scripts/image.sh [NAME]
#
# The base is Debian's image from the registry. Where no registry is within reach, it is a minimal
# root that debootstrap makes from the archive that this machine's apt uses; it stays, for the next
# time. BASE names another one. The Debian packages that podman needs here:
# apt-get install --no-install-recommends podman crun netavark debootstrap
set -euo pipefail
cd "$(dirname "$0")/.."

NAME=${1:-hydra}
RELEASE=trixie
FROM_REGISTRY=docker.io/library/debian:$RELEASE-slim
FROM_ARCHIVE=localhost/debian:$RELEASE-minbase
AUTHORITIES=/etc/ssl/certs/ca-certificates.crt

fail() { echo "image: $*" >&2; exit 1; }
command -v podman >/dev/null ||
  fail "podman is missing: apt-get install --no-install-recommends podman crun netavark"

# A local image of Debian's packages, made when there is none yet.
base_from_archive() {
  podman image exists "$FROM_ARCHIVE" && return
  ((EUID == 0)) || fail "debootstrap needs root: run this as root, or set BASE to an image"

  directory=$(mktemp -d)
  trap 'rm -rf --one-file-system "$directory"' EXIT
  echo "image: no registry within reach: making $FROM_ARCHIVE by debootstrap (a minute or two)" >&2
  scripts/debian_root.sh "$RELEASE" "$directory/root"
  tar --create --numeric-owner --directory "$directory/root" . | podman import --quiet - "$FROM_ARCHIVE"
}

base=${BASE:-$FROM_REGISTRY}
if [[ ! ${BASE:-} ]] && ! podman pull --quiet "$FROM_REGISTRY" >/dev/null 2>&1; then
  base_from_archive
  base=$FROM_ARCHIVE
fi
# Chroot isolation needs nothing that a machine in a container lacks.
podman build --format docker --isolation chroot --pull=missing --build-arg BASE="$base" \
  --volume "$AUTHORITIES:/ca.crt:ro" --build-arg PIP_CERT=/ca.crt \
  --tag "$NAME" --file deploy/container/Containerfile .
