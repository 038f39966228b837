#!/bin/bash
# Makes sure that the tools are there, and that build/venv is a virtual environment with
# everything that tools/requirements*.txt pin.
#
# The environment lies in a cache that all clones share, keyed by the requirements and the
# Python. Makes in several clones take turns; one that is interrupted leaves no mark
# of completion, and the next starts over.
#
#   PYTHON                 the interpreter (python3)
#   RINGLANE_CACHE         where the environments lie (~/.cache/ringlane)
#   RINGLANE_TORCH_INDEX   package index for torch alone, such as a CPU-only one
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
cache=${RINGLANE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ringlane}

say() { printf 'ringlane: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# The programs that are missing, as Debian and Ubuntu name their packages.
missing_packages() {
    command -v gcc >/dev/null || echo gcc libc6-dev
    command -v g++ >/dev/null || echo g++
    command -v flock >/dev/null || echo util-linux
    command -v git >/dev/null || echo git
    if ! command -v "$python" >/dev/null; then
        echo python3 python3-venv
    elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        echo python3-venv
    fi
}

install_tools() {
    local missing
    missing=$(missing_packages | tr '\n' ' ')
    if [[ -n ${missing// /} ]]; then
        if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
            say "installing $missing"
            apt-get update -qq
            # shellcheck disable=SC2086  one word a package
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >&2
        else
            fail "set up: missing: $missing(install them, on Debian and Ubuntu: sudo apt-get install $missing)"
        fi
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "set up: $("$python" --version) is too old (Python 3.10 or newer is needed; name it: make PYTHON=python3.12 ...)"
}

# Debian's Go may be older than 1.26, and then there is nothing to install from there.
check_go() {
    local get='get Go 1.26 or newer from https://go.dev/dl and put its bin directory in PATH'
    if ! command -v go >/dev/null; then
        if [[ $(id -u) == 0 ]] && command -v apt-cache >/dev/null &&
            apt-cache show golang-1.26-go >/dev/null 2>&1; then
            say "installing golang-1.26-go"
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq golang-1.26-go >&2
            ln -sf /usr/lib/go-1.26/bin/go /usr/lib/go-1.26/bin/gofmt /usr/local/bin/
        else
            fail "set up: no go command ($get)"
        fi
    fi
    local version
    version=$(go env GOVERSION) || fail "set up: go does not work here ($get)"
    [[ $(printf '%s\n' go1.26 "$version" | sort -V | head -n 1) == go1.26 ]] ||
        fail "set up: $version is too old ($get)"
}

# The version of the torch that the interpreter already has, if it will do.
system_torch() {
    "$python" -I - <<'END'
from importlib.metadata import PackageNotFoundError, version
try:
    found = version("torch")
    if tuple(map(int, found.split(".")[:2])) >= (2, 5):
        print(found)
except PackageNotFoundError:
    pass
END
}

install_venv() {
    local venv=$1 torch=$2
    rm -rf "$venv"
    "$python" -m venv "$venv"
    if [[ -n $torch ]]; then
        say "making a virtual environment that sees the installed torch $torch"
        # Not --system-site-packages, which sees nothing of another virtual environment.
        "$python" -I - > "$("$venv/bin/python" -c \
            'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth" <<'END'
import sys
print(*(p for p in sys.path if p.endswith(("site-packages", "dist-packages"))), sep="\n")
END
    else
        say "making a virtual environment; torch is a large download the first time"
        "$venv/bin/python" -m pip install --disable-pip-version-check \
            ${RINGLANE_TORCH_INDEX:+--index-url "$RINGLANE_TORCH_INDEX"} \
            -r tools/requirements-torch.txt >&2
    fi
    "$venv/bin/python" -m pip install --disable-pip-version-check -r tools/requirements.txt >&2
    touch "$venv/complete"
}

install_tools
check_go
torch=$(system_torch)
key=$({
    cat tools/requirements.txt tools/requirements-torch.txt
    "$python" -c 'import sys; print(sys.version, sys.prefix)'
    echo "$torch ${RINGLANE_TORCH_INDEX:-}"
} | sha256sum | cut -c 1-16)
venv=$cache/venv-$key

if [[ ! -e $venv/complete ]]; then
    mkdir -p "$cache"
    exec 9>"$cache/venv-$key.lock"
    flock -n 9 || { say "waiting for another set-up of the same environment"; flock 9; }
    [[ -e $venv/complete ]] || install_venv "$venv" "$torch"
    exec 9>&-
fi
mkdir -p build
ln -sfn "$venv" build/venv
