#!/bin/bash
# Writes constraints.txt anew from requirements.txt: what that brings in its turn, each with its
# version and the hashes of its files for every Python, which pip then checks. What tests need
# besides comes last. Versions stay as they are where requirements.txt allows it; with --upgrade,
# all that it does not pin become the newest.
set -euo pipefail
PIP_TOOLS=7.6.2
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "renew_constraints: fetching pip-tools"
/usr/bin/python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pip-tools==$PIP_TOOLS"
compile() {
  PIP_CONSTRAINT=$PWD/build-constraints.txt PIP_BUILD_CONSTRAINT=$PWD/build-constraints.txt \
    CUSTOM_COMPILE_COMMAND=scripts/renew_constraints.sh \
    "$folder/venv/bin/pip-compile" --quiet --no-annotate --strip-extras --no-emit-options --allow-unsafe "$@"
}
echo "renew_constraints: asking the index for versions and hashes (some minutes)"
cp constraints.txt "$folder/all.txt"
compile --generate-hashes --output-file "$folder/all.txt" "$@" requirements.txt
# Run time and emulation are the first two sections.
awk 'BEGIN { RS = ""; ORS = "\n\n" } NR <= 2' requirements.txt >"$folder/demo.in"
sed -n 's/^\([a-z][^ ]*==[^ ]*\).*/\1/p' "$folder/all.txt" >"$folder/versions.txt"
compile --constraint "$folder/versions.txt" --output-file "$folder/demo.txt" "$folder/demo.in"
awk -v marker="# What tests and the documents need besides." '
  /^# The following/ || /^$/ { next }
  FNR == NR { if (/^[a-z]/) demo[$1] = 1; next }
  /^[a-z]/ { rest = !($1 in demo) }
  rest { late = late $0 "\n"; next }
  { print }
  END { printf "%s\n%s", marker, late }
' "$folder/demo.txt" "$folder/all.txt" >"$folder/constraints.txt"
cp "$folder/constraints.txt" constraints.txt
echo "renew_constraints: constraints.txt has $(grep -c == constraints.txt) packages"
