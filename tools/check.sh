#!/bin/bash
# Format, vet, lint, module file, generated files. Changes nothing but generated files.
set -uo pipefail
cd "$(dirname "$0")/.."

failed=0
step() {
    local name=$1
    shift
    echo "== $name"
    "$@" || { echo "check: $name failed" >&2; failed=1; }
}

go_format() {
    local files
    files=$(gofmt -l .)
    [[ -z $files ]] || { echo "$files"; echo "(run gofmt -w on these)"; return 1; }
}
generated() {
    go generate ./... && git diff --exit-code --stat -- $(git grep -l 'Code generated .* DO NOT EDIT') ||
        { echo "(generated files differ from what is committed: run make gen and commit)"; return 1; }
}

# The NEON kernels run here under an emulator, where there is one.
neon() {
    local qemu
    [[ $(uname -m) != aarch64 ]] || { echo "this is an arm64: go test has run them"; return; }
    qemu=$(command -v qemu-aarch64-static qemu-aarch64 | head -1)
    [[ -n $qemu ]] || { echo "NOT RUN: no qemu-aarch64 here (install qemu-user-static)"; return; }
    GOARCH=arm64 go test -short -exec "$qemu" ./internal/hardware/reduce
}

# The compiler is downloaded; without it go test still sees that sources were changed.
ptx() {
    tools/setup-ptx.sh || { echo "NOT RUN: no CUDA compiler here"; return; }
    build/venv/bin/python tools/ptx.py --check
}

step gofmt go_format
step 'go vet' go vet ./...
step 'go vet of the generator' go -C internal/hardware/reduce/avo vet ./...
step staticcheck go tool staticcheck ./...
step 'go mod tidy' go mod tidy -diff
step 'generated files' generated
step 'NEON kernels' neon
step 'GPU kernels' ptx
step ruff build/venv/bin/python -m ruff check python examples bench tools setup.py
step 'ruff format' build/venv/bin/python -m ruff format --check python examples bench tools setup.py
exit $failed
