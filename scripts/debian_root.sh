#!/bin/bash
# Builds a minimal root of a Debian release in a directory: scripts/debian_root.sh trixie DIRECTORY
#
# Taken by debootstrap from the archive that this machine's apt uses (or MIRROR), with the PACKAGES
# (a,b,c) besides. What debootstrap says is in DIRECTORY.log. The directory is there only when whole.
set -euo pipefail

fail() { echo "debian_root: $*" >&2; exit 1; }
(($# == 2)) || fail "say which release, and into which directory"
release=$1 root=$2
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
# apt knows how this machine reaches an archive.
mirror=${MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
  awk '$1 == "Debian" && !found { print $2; found = 1 }')}
[[ $mirror ]] || fail "apt names no Debian archive here: set MIRROR to one"
rm -rf --one-file-system "$root.new"
# An older debootstrap does not know a newer release's name; all are built as sid is.
debootstrap --variant=minbase ${PACKAGES:+--include="$PACKAGES"} \
  "$release" "$root.new" "$mirror" /usr/share/debootstrap/scripts/sid >"$root.log" ||
  fail "debootstrap could not build $release: see $root.log"
rm -f "$root.new"/var/cache/apt/archives/*.deb
mv "$root.new" "$root"
