#!/bin/bash
# Builds the emulator of the CUDA driver, with our kernels in it, and prints where
# it is: build/emulator/HASH/libcuda.so.1, by the hash of what it is made of. What
# is there already is not built again; builds at the same time take turns.
#
#   tools/emulator.sh [KERNELS.cu ...]    kernels besides those of the project
#
#   CXX                    the compiler (g++)
#   RINGLANE_EMULATOR_OUT  where to build (build/emulator)
#
# Exit status 3: there is no compiler.
set -euo pipefail

extra=()
for file in "$@"; do
    extra+=("$(realpath "$file")")
done
cd "$(dirname "$0")/.."

cxx=${CXX:-g++}
out=${RINGLANE_EMULATOR_OUT:-build/emulator}
cuda=internal/hardware/cuda
flags=(-std=c++17 -fPIC -pthread -fvisibility=hidden)
driver_flags=(-O2 -Wall -Wextra)
# Kernels look at the same bytes as several types, and round as a GPU does.
kernel_flags=(-O1 -x c++ -fno-strict-aliasing -ffp-contract=off -fno-exceptions
    "-I$cuda/kernels" "-I$cuda/emulator")

command -v "$cxx" >/dev/null || {
    echo "ringlane: emulator: no $cxx (install g++)" >&2
    exit 3
}

shopt -s nullglob
sources=("$cuda"/emulator/driver/*.cc)
headers=("$cuda"/emulator/machine.h "$cuda"/emulator/driver/*.h "$cuda"/kernels/*.cuh)
kernels=("$cuda"/kernels/*.cu "$cuda"/kernels/build.txt "${extra[@]}")

hash=$({
    "$cxx" --version
    uname -m
    cat tools/emulator.sh "${sources[@]}" "${headers[@]}" "${kernels[@]}"
} | sha256sum | cut -c 1-16)
library=$PWD/$out/$hash/libcuda.so.1
[[ $out == /* ]] && library=$out/$hash/libcuda.so.1

# The commands that compile, one a line. build.txt lists our kernels: module, source, macros.
commands() {
    local file module source macros
    for file in "${sources[@]}"; do
        command_for "$(basename "$file" .cc)" "${driver_flags[@]}" "$file"
    done
    while read -r module source macros; do
        # shellcheck disable=SC2086  one word a macro
        command_for "kernels-$module" "${kernel_flags[@]}" ${macros:+$(printf -- '-D%s ' $macros)} \
            "$cuda/kernels/$source"
    done < <(grep -v '^#' "$cuda/kernels/build.txt")
    for file in "${extra[@]}"; do
        command_for "extra-$(basename "$file" .cu)" "${kernel_flags[@]}" "$file"
    done
}

command_for() {
    printf '%q ' "$cxx" "${flags[@]}" -c "${@:2}" -o "$work/$1.o"
    echo
}

build() {
    work=$(mktemp -d "$out/.work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    commands | xargs -P "$(nproc)" -d '\n' -I{} bash -c '{}'
    # No name of its own: a program that asks for libcuda.so.1 is not given this one.
    "$cxx" -shared -pthread -static-libstdc++ -static-libgcc -Wl,-Bsymbolic,--exclude-libs,ALL -Wl,-z,nodelete,-z,defs \
        -o "$work/libcuda.so.1" "$work"/*.o
    mkdir -p "$(dirname "$library")"
    mv "$work/libcuda.so.1" "$library"
    # Those of sources that are gone.
    find "$out" -mindepth 1 -maxdepth 1 -type d -mtime +1 ! -name "$hash" -exec rm -rf {} +
}

if [[ ! -e $library ]]; then
    mkdir -p "$out"
    exec 9>"$out/.lock"
    flock 9
    [[ -e $library ]] || build 9>&- >&2
fi
echo "$library"
