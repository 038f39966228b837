#!/bin/bash
# Runs the Go and the Python tests, all of both, and ends with a summary.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Several tests want the emulator at once: each would wait for it, with less time for itself.
tools/emulator.sh >/dev/null || [[ $? == 3 ]] || exit 1 # 3: no compiler, and tests say so

go test ./... 2>&1 | tee "$log"
go=${PIPESTATUS[0]}
packages=$(grep -c '^ok' "$log")

go test -race -short ./internal/model/... ./internal/logic/... 2>&1 | tee "$log"
race=${PIPESTATUS[0]}

FUZZTIME=5000x tools/fuzz.sh 2>&1 | tee "$log"
fuzz=${PIPESTATUS[0]}
targets=$(grep -c '^== ' "$log")

PATH=$PWD/build:$PATH PYTHONPATH=$PWD/python build/venv/bin/python -m pytest "$@" 2>&1 | tee "$log"
python=${PIPESTATUS[0]}
summary=$(grep -E '(passed|failed|error)' "$log" | tail -n 1)

verdict() { [[ $1 == 0 ]] && echo ok || echo FAILED; }
echo
echo "Go            $(verdict "$go"): $packages packages"
echo "Go, -race     $(verdict "$race")"
echo "Fuzzing       $(verdict "$fuzz"): $targets targets"
echo "Python        $(verdict "$python"): $summary"
[[ $go == 0 && $race == 0 && $fuzz == 0 && $python == 0 ]]
