#!/bin/bash
# Writes constraints.txt anew from requirements.txt: what that brings in its turn, each with its
# version and the hashes of its files, which pip then checks. Versions stay as they are where
# requirements.txt allows it; with --upgrade, all that it does not pin become the newest.
set -euo pipefail
PIP_TOOLS=7.6.2
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "renew_constraints: fetching pip-tools"
/usr/bin/python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pip-tools==$PIP_TOOLS"
echo "renew_constraints: asking the index for versions and hashes (some minutes)"
PIP_CONSTRAINT=$PWD/build-constraints.txt CUSTOM_COMPILE_COMMAND=scripts/renew_constraints.sh \
  "$folder/venv/bin/pip-compile" --quiet --generate-hashes --no-annotate --strip-extras \
  --no-emit-options \
  --output-file constraints.txt "$@" requirements.txt
echo "renew_constraints: constraints.txt has $(grep -c == constraints.txt) packages"
