#!/bin/bash
# Builds the emulator of the CUDA driver, with our kernels in it, and prints where
# it is: build/emulator/HASH/libcuda.so.1, by the hash of what it is made of. What
# has been compiled is not compiled again; builds at the same time take turns.
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
# No name of its own: a program that asks for libcuda.so.1 is not given this one.
link_flags=(-shared -pthread -static-libstdc++ -static-libgcc
    -Wl,-Bsymbolic,--exclude-libs,ALL -Wl,-z,nodelete,-z,defs)
# Kernels look at the same bytes as several types, and round as a GPU does.
# An access that is not aligned to its size ends the program, as on a GPU.
kernel_flags=(-O1 -x c++ -fno-strict-aliasing -ffp-contract=off -fno-exceptions
    -fsanitize=alignment -fsanitize-undefined-trap-on-error
    "-I$cuda/kernels" "-I$cuda/emulator")

command -v "$cxx" >/dev/null || {
    echo "ringlane: emulator: no $cxx (install g++)" >&2
    exit 3
}

driver=("$cuda"/emulator/driver/*.cc)
driver_headers=("$cuda"/emulator/driver/*.h)
kernel_headers=("$cuda"/kernels/*.cuh "$cuda/emulator/machine.h" "$cuda/emulator/driver/lane.h")
compiler=$("$cxx" --version; uname -m)

# object prints where the object of a source is, by the hash of all it is made of,
# and has it compiled if it is not there:
#   object SOURCE HEADERS-HASH FLAGS...
object() {
    local source=$1 hash object
    hash=$({ echo "$compiler" "${@:2}"; cat "$source"; } | sha256sum | cut -c 1-16)
    object=$out/objects/$hash.o
    echo "$object" >>"$work/objects"
    [[ -e $object ]] || {
        printf '%q ' "$cxx" "${@:3}" -c "$source" -o "$object.$$"
        printf '&& mv %q %q\n' "$object.$$" "$object"
    } >>"$work/commands"
}

hash_of() { cat "$@" | sha256sum; }

# What there is to compile. build.txt lists our kernels: module, source, macros.
objects() {
    local headers source module macros
    : >"$work/commands"
    headers=$(hash_of "${driver_headers[@]}")
    for source in "${driver[@]}"; do
        object "$source" "$headers" "${flags[@]}" "${driver_flags[@]}"
    done
    headers=$(hash_of "${kernel_headers[@]}")
    while read -r module source macros; do
        # shellcheck disable=SC2086  one word a macro
        object "$cuda/kernels/$source" "$headers" "${flags[@]}" "${kernel_flags[@]}" \
            ${macros:+$(printf -- '-D%s ' $macros)}
    done < <(grep -v '^#' "$cuda/kernels/build.txt")
    for source in "${extra[@]}"; do
        object "$source" "$headers" "${flags[@]}" "${kernel_flags[@]}"
    done
}

mkdir -p "$out"
out=$(realpath "$out")
exec 9>"$out/.lock"
flock 9
work=$out/work # of one build at a time: what a killed one has left is gone here
rm -rf "$work"
mkdir -p "$work" "$out/objects"
trap 'rm -rf "$work"' EXIT
objects
mapfile -t objects <"$work/objects"
folder=$out/$(echo "${objects[@]}" "${link_flags[@]}" | sha256sum | cut -c 1-16)
if [[ ! -e $folder/libcuda.so.1 ]]; then
    xargs -P "$(nproc)" -d '\n' -I{} bash -c '{}' <"$work/commands" >&2 9>&-
    "$cxx" "${link_flags[@]}" -o "$work/libcuda.so.1" "${objects[@]}" >&2 9>&-
    mkdir -p "$folder"
    mv "$work/libcuda.so.1" "$folder/libcuda.so.1"
    touch "${objects[@]}"
    # What nobody has asked for in days, and objects of builds that were killed.
    find "$out" -mindepth 1 -mtime +1 ! -path "$folder*" \( -name '*.o*' -o -name libcuda.so.1 \) -delete
    find "$out" -mindepth 1 -type d -empty -delete
fi
touch "$folder/libcuda.so.1"
echo "$folder/libcuda.so.1"
