#!/bin/sh
# Keeps a commit in tests/releases, for tests that run it beside the present one: scripts/keep_release.sh COMMIT
set -eu
cd "$(dirname "$0")/.."
commit=$(git rev-parse --short=8 --verify "$1^{commit}")
git archive --prefix="$commit/" "$commit" hydra apps drivers topology setup.py requirements.txt |
  xz -9e >"tests/releases/$commit.tar.xz"
