#!/bin/bash
# Makes sure that build/cuda has the CUDA compiler that tools/requirements-ptx.txt pins. After
# tools/setup.sh. Neither a GPU nor a CUDA toolkit is needed.
#
# It lies in the same cache as the virtual environment, keyed by the requirements, and is
# downloaded once.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${RINGLANE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringlane}
requirements=tools/requirements-ptx.txt
cuda=$cache/cuda-$({ cat "$requirements" && uname -m; } | sha256sum | cut -c 1-16)

say() { printf 'ringlane: %s\n' "$*" >&2; }

install_cuda() {
    rm -rf "$cuda"
    say "installing NVRTC and ptxas (about 50 MB to download)"
    build/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
        --only-binary :all: --target "$cuda" -r "$requirements" >&2 ||
        { say "set up: the CUDA compiler cannot be installed (look above)"; exit 1; }
    touch "$cuda/complete"
}

mkdir -p "$cache"
exec 9>"$cache/cuda.lock"
flock 9
[[ -e $cuda/complete ]] || install_cuda
ln -sfn "$cuda" build/cuda
