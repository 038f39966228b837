#!/bin/bash
# Runs every fuzz target of the tree for FUZZTIME each (10m unless set; 5000x is that
# many executions), and stops at the first that finds something.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-10m}
grep -rHo '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' internal capi cmd | while IFS=: read -r file function; do
    target=${function#func }
    echo "== $target for $time in $(dirname "$file")"
    # Minimising a large input by time would stall the run.
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "./$(dirname "$file")"
done
