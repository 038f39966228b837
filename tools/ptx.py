#!/usr/bin/env python3
"""Compiles the GPU kernels: internal/hardware/cuda/kernels/*.cu to PTX in ptx/ beside them.

    tools/ptx.py                        writes ptx/ again (make gen)
    tools/ptx.py --check                compares ptx/ with the sources (make check)
    tools/ptx.py --resources [MODULE…]  registers and memory of each kernel on each GPU
    tools/ptx.py --sass MODULE          machine code for one GPU (--gpu sm_90) and, if --kernel
                                        names one, of one kernel

--check and --resources compile on to machine code and fail if a kernel keeps anything in local
memory: spilled registers, or an array that is indexed.

The compiler is NVRTC, which tools/setup-ptx.sh puts in build/cuda. It sees the sources without
their path, and comments are taken out of its output, so that every machine gets the same PTX.
What it and ptxas have made is kept there, for all clones: nothing is compiled twice.
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "internal/hardware/cuda/kernels"
CUDA = ROOT / "build/cuda"

# PTX is compiled once more when it is loaded, for the very GPU: these are Volta and later,
# Ampere and later, Hopper and later.
CAPABILITIES = (70, 80, 90)

# A product and a sum in one rounding would not be what a CPU computes.
OPTIONS = ("--std=c++17", "--fmad=false")


class Failure(Exception):
    """What failed, why, and what to do about it."""


@dataclass(frozen=True)
class Module:
    """A line of build.txt: what is loaded at once, and what it is made of."""

    name: str
    source: str
    macros: tuple[str, ...] = ()


@dataclass(frozen=True)
class Usage:
    """What ptxas says that a function takes: registers, and bytes."""

    function: str
    registers: int
    shared: int
    stack: int
    spilled: int


def modules(folder: Path) -> list[Module]:
    """The modules that build.txt lists."""
    found: dict[str, Module] = {}
    for number, line in enumerate((folder / "build.txt").read_text().splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"build.txt:{number}"
        if len(words) < 2:
            raise Failure(f"{where}: {line!r}: no source (a line is: module, source, macros)")
        module = Module(words[0], words[1], tuple(words[2:]))
        if module.name in found:
            raise Failure(f"{where}: a second module {module.name} (each has one line)")
        if not (folder / module.source).is_file():
            raise Failure(f"{where}: module {module.name}: there is no {module.source}")
        found[module.name] = module
    unused = {path.name for path in folder.glob("*.cu")} - {m.source for m in found.values()}
    if unused:
        raise Failure(f"{min(unused)}: in no module (give it a line in build.txt)")
    return list(found.values())


def sources(folder: Path) -> dict[str, bytes]:
    """All that PTX depends on, but for the compiler."""
    paths = [folder / "build.txt", *folder.glob("*.cu"), *folder.glob("*.cuh")]
    return {path.name: path.read_bytes() for path in sorted(paths)}


def parts(name: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """A source and all that it may include."""
    found = {name: files[name]}
    for included in re.findall(rb'(?m)^#include "(.+)"$', files[name]):
        if included.decode() in files:
            found |= parts(included.decode(), files)
    return found


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """A file, which is made if it is not there."""
    if not path.is_file():
        made = make()
        path.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            (Path(folder) / path.name).write_bytes(made)
            (Path(folder) / path.name).rename(path)
    return path.read_bytes()


def without_comments(ptx: str) -> str:
    """PTX without comments and empty lines: they tell the compiler's build, and number calls
    from the start of the process."""
    lines = (line.partition("//")[0].rstrip() for line in ptx.splitlines())
    return "".join(f"{line}\n" for line in lines if line)


class Compiler:
    """NVRTC through ctypes."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(str(CUDA / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"))
        except OSError as error:
            raise Failure(f"load NVRTC: {error} (run make setup and tools/setup-ptx.sh)") from None
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Failure(f"{name}: {self.library.nvrtcGetErrorString(status).decode()}")

    def text(self, kind: str, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, buffer)
        return buffer.value.decode()

    def ptx(self, module: Module, capability: int, files: dict[str, bytes]) -> bytes:
        """The PTX of a module, of its source and headers. What the compiler has to say makes it
        fail, warnings too."""
        headers = {name: text for name, text in files.items() if name != module.source}
        options = [f"--gpu-architecture=compute_{capability}", *OPTIONS]
        options += [f"--define-macro={macro}" for macro in module.macros]
        program = ctypes.c_void_p()
        self.call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            files[module.source],
            module.source.encode(),
            len(headers),
            strings(headers.values()),
            strings(name.encode() for name in headers),
        )
        try:
            status = self.library.nvrtcCompileProgram(
                program, len(options), strings(option.encode() for option in options)
            )
            log = self.text("ProgramLog", program).strip()
            if status or log:
                why = log or self.library.nvrtcGetErrorString(status).decode()
                raise Failure(f"compile {module.name} for compute_{capability}:\n{why}")
            return without_comments(self.text("PTX", program)).encode()
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


def strings(values: Iterable[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    values = list(values)
    return (ctypes.c_char_p * len(values))(*values)


def compiled(chosen: list[Module], capabilities: Iterable[int], folder: Path) -> dict[str, bytes]:
    """PTX by its name in ptx/, such as compute_80/f32."""
    compiler = Compiler()
    files = sources(folder)
    myself = Path(__file__).read_bytes()

    def one(job: tuple[Module, int]) -> bytes:
        module, capability = job
        needed = parts(module.source, files)
        key = hashlib.sha256(repr((myself, module, capability, needed)).encode()).hexdigest()
        return gzip.decompress(
            kept(
                CUDA / "made" / f"{key}.ptx.gz",
                lambda: gzip.compress(compiler.ptx(module, capability, needed)),
            )
        )

    jobs = {f"compute_{c}/{m.name}": (m, c) for m in chosen for c in capabilities}
    with ThreadPoolExecutor() as pool:
        return dict(zip(jobs, pool.map(one, jobs.values())))


def distinct(ptx: dict[str, bytes]) -> dict[str, bytes]:
    """What is worth storing: not what, but for its target, is the same as the one below it.

    Drivers compile the lower one to the same machine code, and most modules use nothing new."""
    kept: dict[str, bytes] = {}
    below: dict[str, bytes] = {}
    for name in sorted(ptx, key=lambda name: int(re.findall(r"\d+", name)[0])):
        module = name.partition("/")[2]
        text = re.sub(rb"(?m)^\.target .*\n", b"", ptx[name])
        if below.get(module) != text:
            kept[name], below[module] = ptx[name], text
    return kept


def manifest(ptx: dict[str, bytes], folder: Path) -> str:
    """What PTX was made of, so that a test sees without a compiler that it is out of date."""
    installed = {found.name: found.version for found in distributions(path=[str(CUDA)])}

    def hashes(files: dict[str, bytes]) -> dict[str, str]:
        return {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(files)}

    document = {
        "nvrtc": installed["nvidia-cuda-nvrtc-cu12"],
        "options": OPTIONS,
        "sources": hashes(sources(folder)),
        "ptx": hashes(ptx),
    }
    return json.dumps(document, indent=2) + "\n"


def stored(folder: Path) -> dict[str, bytes]:
    """What ptx/ holds: compared unpacked, since the same text may be packed in several ways."""
    archive = folder / "ptx"
    return {
        path.relative_to(archive).as_posix().removesuffix(".ptx.gz"): gzip.decompress(
            path.read_bytes()
        )
        for path in archive.glob("*/*.ptx.gz")
    }


def write(ptx: dict[str, bytes], folder: Path) -> None:
    old = stored(folder)
    for name in old.keys() | ptx.keys():
        path = folder / "ptx" / f"{name}.ptx.gz"
        if name not in ptx:
            path.unlink()
        elif ptx[name] != old.get(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(ptx[name], mtime=0))
    (folder / "ptx/manifest.json").write_text(manifest(ptx, folder))


def compare(ptx: dict[str, bytes], folder: Path) -> None:
    """Fails if ptx/ is not what the sources give now."""
    old = stored(folder)
    differ = sorted(name for name in old.keys() | ptx.keys() if old.get(name) != ptx.get(name))
    path = folder / "ptx/manifest.json"
    if not path.is_file() or path.read_text() != manifest(ptx, folder):
        differ.append("manifest.json")
    if differ:
        raise Failure(f"ptx/: out of date: {', '.join(differ)} (run make gen and commit)")


def assemble(ptx: bytes, gpu: str, cubin: Path, *options: str) -> str:
    """Compiles to machine code; returns what ptxas says of it."""
    source = cubin.with_suffix(".ptx")
    source.write_bytes(ptx)
    ptxas = CUDA / "nvidia/cuda_nvcc/bin/ptxas"
    return output(ptxas, "-v", f"-arch={gpu}", source, "-o", cubin, *options)


def output(*command: object) -> str:
    """Runs a program; returns what it says on standard output and error."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failure(f"{Path(str(command[0])).name}: {done.stdout.strip()}")
    return done.stdout


def usages(report: str) -> list[Usage]:
    """What ptxas -v says of each function; one that kernels call uses their registers."""
    found = []
    for function, rest in re.findall(
        r"Function properties for (\S+)\n(.*?)(?=Compiling entry|Function properties|\Z)",
        report,
        re.DOTALL,
    ):

        def number(pattern: str, text: str = rest) -> int:
            return sum(map(int, re.findall(pattern, text)))

        found.append(
            Usage(
                function,
                registers=number(r"Used (\d+) registers"),
                shared=number(r"(\d+) bytes smem"),
                stack=number(r"(\d+) bytes stack frame"),
                spilled=number(r"(\d+) bytes spill"),
            )
        )
    return found


def resources(ptx: dict[str, bytes]) -> dict[tuple[str, str], list[Usage]]:
    """What each function takes, by module and GPU."""

    def report(text: bytes, gpu: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            return assemble(text, gpu, Path(folder, "module.cubin")).encode()

    def one(item: tuple[str, bytes]) -> tuple[tuple[str, str], list[Usage]]:
        target, module = item[0].split("/")
        gpu = target.replace("compute", "sm")
        path = CUDA / "reports" / f"{hashlib.sha256(item[1]).hexdigest()}.txt"
        said = kept(path, lambda: report(item[1], gpu)).decode()
        if "warning" in said:
            raise Failure(f"ptxas, {module} for {gpu}:\n{said}")
        return (module, gpu), usages(said)

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(one, ptx.items()))


def local_memory(taken: dict[tuple[str, str], list[Usage]]) -> list[str]:
    """The complaints about functions that keep anything in local memory."""
    return [
        f"{module} for {gpu}: {use.function}: {use.stack} bytes of stack, {use.spilled} spilled"
        for (module, gpu), uses in taken.items()
        for use in uses
        if use.stack or use.spilled
    ]


def table(taken: dict[tuple[str, str], list[Usage]]) -> str:
    """A line for each kernel on each GPU."""
    rows = [("module", "kernel", "gpu", "registers", "shared", "stack", "spilled")]
    for (module, gpu), uses in taken.items():
        for use in sorted((u for u in uses if u.registers), key=lambda use: use.function):
            numbers = map(str, (use.registers, use.shared, use.stack, use.spilled))
            rows.append((module, use.function, gpu, *numbers))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 3 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    )


def sass(module: Module, gpu: str, kernel: str | None, folder: Path) -> str:
    """Machine code as text. nvdisasm is of CUDA 13, which knows GPUs from sm_75 on."""
    number = int(re.sub(r"\D", "", gpu) or 0)
    fitting = [c for c in CAPABILITIES if c <= number]
    if not fitting:
        raise Failure(f"{gpu}: no such GPU (name one as ptxas does: sm_90)")
    (ptx,) = compiled([module], fitting[-1:], folder).values()
    nvdisasm = CUDA / "nvidia/cu13/bin/nvdisasm"
    chosen = ["--entry", kernel] if kernel else []
    with tempfile.TemporaryDirectory() as scratch:
        cubin = Path(scratch, "module.cubin")
        assemble(ptx, gpu, cubin, *chosen)
        return output(nvdisasm, "-c", cubin)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--resources", nargs="*", metavar="MODULE")
    mode.add_argument("--sass", metavar="MODULE")
    parser.add_argument("--gpu", default="sm_90", help="sm_75 or later (sm_90)")
    parser.add_argument("--kernel")
    asked = parser.parse_args(arguments)

    every = {module.name: module for module in modules(KERNELS)}
    named = [asked.sass] if asked.sass else asked.resources or every
    for name in named:
        if name not in every:
            raise Failure(f"{name}: no such module (build.txt has {', '.join(every)})")
    chosen = [every[name] for name in named]
    if asked.sass:
        print(sass(chosen[0], asked.gpu, asked.kernel, KERNELS))
        return
    ptx = compiled(chosen, CAPABILITIES, KERNELS)
    if asked.resources is None and not asked.check:
        write(distinct(ptx), KERNELS)
        return
    taken = resources(ptx)
    if asked.resources is not None:
        print(table(taken))
    if asked.check:
        compare(distinct(ptx), KERNELS)
    complaints = local_memory(taken)
    if complaints:
        raise Failure("local memory is used:\n" + "\n".join(complaints))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"ptx: {failure}")
