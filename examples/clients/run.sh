#!/bin/bash
# Makes clients of the REST API with generators for four languages, compiles them, and has each
# reserve at a controller's REST API, to the microsecond. Prints a table for docs/api.md.
#
# Needs a built clone (make bootstrap), Go, Node.js with npm, Java with Maven, and the packages'
# registries: not part of CI. Exits with 1 if a document is not valid, or a client does not compile,
# or its reservation begins at another microsecond than it asked for. `run.sh java_client` makes one alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
CLIENTS=$PWD/examples/clients PYTHON=$PWD/.venv/bin/python
OPENAPI_GENERATOR=7.25.0 OAPI_CODEGEN=2.8.2 OPENAPI_TYPESCRIPT=7.13.0 OPENAPI_FETCH=0.15.0
TYPESCRIPT=5.9.3 NODE_TYPES=20.19.0 OPENAPI_PYTHON_CLIENT=0.29.1 OPENAPI_SPEC_VALIDATOR=0.9.0 SPECTRAL=6.16.3

folder=$(mktemp -d)
server_pid=
end() {
  exec 3>&- || true
  [ -z "$server_pid" ] || wait "$server_pid" || true
  chmod -R u+w "$folder"
  rm -rf "$folder"
}
trap end EXIT
say() { echo "clients: $*" >&2; }

say "starting a controller's REST API"
mkfifo "$folder/stop"
PYTHONPATH=$PWD "$PYTHON" "$CLIENTS/server.py" <"$folder/stop" >"$folder/url" &
server_pid=$!
exec 3>"$folder/stop"
until [ -s "$folder/url" ]; do
  kill -0 "$server_pid" || { say "the server did not start"; exit 1; }
  sleep 0.1
done
url=$(cat "$folder/url")
description=$folder/openapi.json
"$PYTHON" -c 'import sys, urllib.request; sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1]).read())' \
  "$url/openapi.json" >"$description"

failed=0
rows="| generator | version | language | valid, or compiles | reserves to the microsecond |
|---|---|---|---|---|"
number=0
start_at=$(($(date +%s) + 86400))
# reserve NAME VERSION LANGUAGE COMMAND...: run COMMAND URL START, and compare its answer.
reserve() {
  local name=$1 version=$2 language=$3 asked told
  shift 3
  number=$((number + 1))
  asked=$((start_at + number * 3600)).$(printf %06d $((123450 + number)))
  told=$("$@" "$url" "$asked" 2>"$folder/$number.log") || true
  if [ "$told" = "scheduled $asked" ]; then
    add "| $name | $version | $language | yes | yes |"
  else
    say "$name, $language: asked for $asked, was told '$told'"
    tail -n 20 "$folder/$number.log" >&2
    failed=1
    add "| $name | $version | $language | yes | no |"
  fi
}
add() { rows+=$'\n'$1; say "$1"; }
# check NAME VERSION LANGUAGE COMMAND...: a step before the client runs.
check() {
  local name=$1 version=$2 language=$3
  shift 3
  if "$@" >"$folder/check.log" 2>&1; then return 0; fi
  say "$name, $language: $*"
  tail -n 30 "$folder/check.log" >&2
  failed=1
  add "| $name | $version | $language | no | |"
  return 1
}

say "fetching generators"
mkdir "$folder/node" && cd "$folder/node"
npm init -y >/dev/null
npm install --no-fund --no-audit --silent "@stoplight/spectral-cli@$SPECTRAL" "typescript@$TYPESCRIPT" \
  "openapi-typescript@$OPENAPI_TYPESCRIPT" "openapi-fetch@$OPENAPI_FETCH" "@types/node@$NODE_TYPES" >&2
mvn -q -B dependency:copy -Dartifact="org.openapitools:openapi-generator-cli:$OPENAPI_GENERATOR" \
  -DoutputDirectory="$folder" >&2
GOBIN=$folder/bin go install "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v$OAPI_CODEGEN" >&2
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check "openapi-python-client==$OPENAPI_PYTHON_CLIENT" \
  "openapi-spec-validator==$OPENAPI_SPEC_VALIDATOR" pydantic urllib3 python-dateutil typing-extensions >&2
generate() {
  java -jar "$folder/openapi-generator-cli-$OPENAPI_GENERATOR.jar" generate -i "$description" "$@"
}

if check openapi-spec-validator "$OPENAPI_SPEC_VALIDATOR" - \
  "$folder/venv/bin/openapi-spec-validator" "$description"; then
  add "| openapi-spec-validator | $OPENAPI_SPEC_VALIDATOR | | yes | |"
fi
echo 'extends: ["spectral:oas"]' >"$folder/spectral.yaml"
if check Spectral "$SPECTRAL" - node_modules/.bin/spectral lint "$description" \
  --ruleset "$folder/spectral.yaml" --fail-severity hint; then
  add "| Spectral, default rules | $SPECTRAL | | yes | |"
fi

python_client() {
  check openapi-generator $OPENAPI_GENERATOR Python generate -g python -o "$folder/python" || return 0
  reserve openapi-generator $OPENAPI_GENERATOR Python \
    env PYTHONPATH="$folder/python" "$folder/venv/bin/python" "$CLIENTS/generated_python.py"
}

go_module() {
  mkdir -p "$folder/$1/generated"
  cp "$CLIENTS/$2" "$folder/$1/main.go"
  cd "$folder/$1"
  printf 'module hydra\n\ngo 1.24\n' >go.mod
}
built_go() { go mod tidy && go vet ./... && go build -o client .; }

go_client() {
  go_module go generated.go
  # Constants of all enumerations are in one package.
  check openapi-generator $OPENAPI_GENERATOR Go generate -g go -o generated \
    --additional-properties=enumClassPrefix=true,packageName=generated,withGoMod=false || return 0
  rm -rf generated/test generated/go.mod generated/go.sum
  check openapi-generator $OPENAPI_GENERATOR Go built_go || return 0
  reserve openapi-generator $OPENAPI_GENERATOR Go ./client
}

oapi_client() {
  go_module oapi oapi_codegen.go
  check oapi-codegen $OAPI_CODEGEN Go "$folder/bin/oapi-codegen" -package generated \
    -generate types,client -o generated/client.go "$description" || return 0
  check oapi-codegen $OAPI_CODEGEN Go built_go || return 0
  reserve oapi-codegen $OAPI_CODEGEN Go ./client
}

java_client() {
  check openapi-generator $OPENAPI_GENERATOR Java generate -g java -o "$folder/java" || return 0
  cp "$CLIENTS/Reserve.java" "$folder/java/src/main/java/"
  cd "$folder/java"
  check openapi-generator $OPENAPI_GENERATOR Java \
    mvn -q -B -Dmaven.test.skip=true compile dependency:build-classpath -Dmdep.outputFile=classpath || return 0
  reserve openapi-generator $OPENAPI_GENERATOR Java java -cp "target/classes:$(cat classpath)" Reserve
}

compiled_ts() {
  "$folder/node/node_modules/.bin/tsc" --strict --skipLibCheck --target es2022 --module nodenext \
    --moduleResolution nodenext --lib es2022,dom --types node --outDir "$1" "$2"
}

typescript_clients() {
  cd "$folder/node"
  cp "$CLIENTS"/*.ts .
  if check openapi-generator $OPENAPI_GENERATOR TypeScript generate -g typescript-fetch -o client &&
    check openapi-generator $OPENAPI_GENERATOR TypeScript compiled_ts built generated.ts; then
    reserve openapi-generator $OPENAPI_GENERATOR TypeScript node built/generated.js
  fi
  # Fields with a default are optional in requests.
  if check openapi-typescript $OPENAPI_TYPESCRIPT TypeScript node_modules/.bin/openapi-typescript \
    --default-non-nullable=false "$description" -o schema.d.ts &&
    check openapi-typescript $OPENAPI_TYPESCRIPT TypeScript compiled_ts fetched openapi_fetch.ts; then
    reserve "openapi-typescript, openapi-fetch $OPENAPI_FETCH" $OPENAPI_TYPESCRIPT TypeScript \
      node fetched/openapi_fetch.js
  fi
}

other_python_client() {
  cd "$folder"
  check openapi-python-client $OPENAPI_PYTHON_CLIENT Python venv/bin/openapi-python-client generate \
    --path "$description" --meta none --output-path "$folder/other/hydra_client" || return 0
  reserve openapi-python-client $OPENAPI_PYTHON_CLIENT Python \
    env PYTHONPATH="$folder/other" "$folder/venv/bin/python" "$CLIENTS/python_client.py"
}

if [ $# -eq 0 ]; then
  set -- python_client other_python_client go_client oapi_client java_client typescript_clients
fi
for client; do "$client"; done
echo "$rows"
exit "$failed"
