#!/bin/bash
# Makes dist/ringlane-VERSION-linux-ARCH, a folder that runs where there is neither Go nor a
# network, and the same as .tar.gz beside it: the command, the Python package with the library
# in it, tests and benchmarks for GPUs. After tools/setup.sh.
#
#   tools/dist.sh [DIRECTORY]    where to put it (dist)
set -euo pipefail
cd "$(dirname "$0")/.."

python=build/venv/bin/python
oldest_glibc=2.34 # of Debian 12, Ubuntu 22.04 and Enterprise Linux 9
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
name=ringlane-$version-linux-$(uname -m)
out=${1:-dist}

say() { printf 'ringlane: dist: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
root=$work/$name
mkdir "$root"

# The package is what pip installs: a wheel of a copy of the sources, since setuptools writes
# where it builds. Its dist-info tells torch of the backend.
mkdir "$work/source"
find . -mindepth 1 -maxdepth 1 ! -name build ! -name dist -exec cp -a -t "$work/source" {} +
$python -m pip wheel --quiet --no-deps --no-build-isolation --no-index \
    --wheel-dir "$work" "$work/source" >&2 || fail "the wheel does not build (look above)"
$python -m zipfile -e "$work"/ringlane-*.whl "$root/python"
chmod +x "$root/python/ringlane/_lib/ringlane"

# Nothing but glibc is linked: by the library, and by the command, which asks for no version of
# it (purego calls the driver through its dlopen).
library=$root/python/ringlane/_lib/libringlane.so
command=$root/python/ringlane/_lib/ringlane
for file in "$library" "$command"; do
    other=$(objdump -p "$file" | awk '$1 == "NEEDED" && $2 !~ /^(lib(c|dl|pthread|m|rt)\.so\.|ld-linux)/ { print $2 }')
    [[ -z $other ]] || fail "$(basename "$file") needs $other"
done
needed=$(objdump -T "$library" "$command" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[[ $(printf '%s\n' "${needed#GLIBC_}" "$oldest_glibc" | sort -V | tail -n 1) == "$oldest_glibc" ]] ||
    fail "libringlane.so needs $needed, and machines may have $oldest_glibc (build on an older one)"

# Tests: in Go as programs, in Python with the pytest that runs them, which is pure Python.
mkdir -p "$root/tests/go" "$root/bench"
for package in hardware/cuda hardware/window/cudaipc hardware/window/pinned run/device; do
    CGO_ENABLED=0 go test -c -trimpath -ldflags='-s -w' \
        -o "$root/tests/go/${package##*/}.test" "./internal/$package"
done
gzip -9n "$root"/tests/go/*.test # each holds the kernels
cp python/tests/*.py "$root/tests/"
rm -f "$root/tests/test_install.py" "$root/tests/test_example.py" "$root/tests/test_dist.py"
$python - "$root/tests/pytest.zip" pytest pluggy iniconfig packaging pygments <<'END_OF_PYTHON'
import sys
from importlib.metadata import files
from zipfile import ZIP_DEFLATED, ZipFile

target, *packages = sys.argv[1:]
with ZipFile(target, "w", ZIP_DEFLATED) as archive:
    for package in packages:
        for file in files(package):
            if ".." not in file.parts and "__pycache__" not in file.parts:  # console scripts
                archive.write(file.locate(), file)
END_OF_PYTHON
cp bench/gpu*.py bench/report.py "$root/bench/"
cp tools/dist/* "$root/"
cp LICENSE README.md "$root/"
chmod -R u=rwX,go=rX "$root"
chmod +x "$root/ringlane" "$root/run-gpu-tests" "$root/bench-gpu"

mkdir -p "$out"
rm -rf "${out:?}/$name" "${out:?}/$name.tar.gz"
tar -c -C "$work" --owner=0 --group=0 --sort=name "$name" | gzip -9n >"$work/$name.tar.gz"
cp -a "$root" "$work/$name.tar.gz" "$out/"
say "$out/$name: $(du -sm "$root" | cut -f 1) MB, packed $(du -sm "$work/$name.tar.gz" | cut -f 1) MB; glibc ${needed#GLIBC_} or newer"
