"""What goes into PTX and comes out of the compiler's reports."""

# ruff: noqa: S101

from __future__ import annotations

import gzip
import json
from pathlib import Path

import ptx
import pytest

KERNEL = """#include "adds.cuh"
extern "C" __global__ void add(TYPE *a) { a[threadIdx.x] = plus(a[threadIdx.x], NAME(one)); }
"""
HEADER = """#pragma once
static __device__ const TYPE one_ = 1;
static __device__ __noinline__ TYPE plus(TYPE a, TYPE b) { return a + b; }
"""
BUILD = "# a comment\nf32 add.cu TYPE=float NAME(n)=n##_\ni32 add.cu TYPE=int NAME(n)=n##_\n"

REPORT = """ptxas info    : 1 bytes gmem
ptxas info    : Compiling entry function 'push' for 'sm_90'
ptxas info    : Function properties for push
    24 bytes stack frame, 32 bytes spill stores, 76 bytes spill loads
ptxas info    : Used 64 registers, 24 bytes cumulative stack size, 256 bytes smem
ptxas info    : Function properties for _Z4tailPKhj
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'pull' for 'sm_90'
ptxas info    : Function properties for pull
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, 392 bytes cmem[0]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "add.cu").write_text(KERNEL)
    (tmp_path / "adds.cuh").write_text(HEADER)
    (tmp_path / "build.txt").write_text(BUILD)
    return tmp_path


def test_modules_are_lines(folder: Path) -> None:
    assert ptx.modules(folder) == [
        ptx.Module("f32", "add.cu", ("TYPE=float", "NAME(n)=n##_")),
        ptx.Module("i32", "add.cu", ("TYPE=int", "NAME(n)=n##_")),
    ]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        ("f32", "build.txt:1: 'f32': no source"),
        ("f32 add.cu\nf32 add.cu", "build.txt:2: a second module f32"),
        ("f32 sub.cu", "build.txt:1: module f32: there is no sub.cu"),
        ("", "add.cu: in no module"),
    ],
)
def test_a_wrong_line_says_why(folder: Path, build: str, why: str) -> None:
    (folder / "build.txt").write_text(build)
    with pytest.raises(ptx.Failure, match=why):
        ptx.modules(folder)


def test_parts_are_what_is_included(folder: Path) -> None:
    (folder / "adds.cuh").write_text('#include "deep.cuh"\n#include "../elsewhere.h"\n')
    (folder / "deep.cuh").write_text('  // #include "other.cuh"\n')
    (folder / "other.cuh").write_text("")
    assert ptx.parts("add.cu", ptx.sources(folder)).keys() == {"add.cu", "adds.cuh", "deep.cuh"}


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert ptx.kept(path, lambda: b"one") == b"one"
    assert ptx.kept(path, lambda: b"two") == b"one"
    assert list(path.parent.iterdir()) == [path]


def test_comments_are_taken_out() -> None:
    text = "//\n// Build ID: 7\n\n.version 8.4\n\t// begin inline asm\n\t{ // callseq 7, 0\n"
    assert ptx.without_comments(text) == ".version 8.4\n\t{\n"


def test_what_the_target_below_has_is_not_stored() -> None:
    def made(target: int, text: str) -> bytes:
        return f".version 8.4\n.target sm_{target}\n{text}\n".encode()

    same = {f"compute_{c}/a": made(c, "ret;") for c in (100, 70, 80)}
    back = {f"compute_{c}/b": made(c, "new;" if c == 80 else "ret;") for c in (100, 70, 80)}
    kept = ptx.distinct({**same, **back})
    assert kept.keys() == {"compute_70/a", "compute_70/b", "compute_80/b", "compute_100/b"}
    assert kept["compute_80/b"] == made(80, "new;")


def test_usage_is_read_from_reports() -> None:
    found = ptx.usages(REPORT)
    assert found == [
        ptx.Usage("push", registers=64, shared=256, stack=24, spilled=108),
        ptx.Usage("_Z4tailPKhj", registers=0, shared=0, stack=0, spilled=0),
        ptx.Usage("pull", registers=20, shared=0, stack=0, spilled=0),
    ]
    assert ptx.local_memory({("f32", "sm_90"): found}) == [
        "f32 for sm_90: push: 24 bytes of stack, 108 spilled"
    ]
    assert [line.split() for line in ptx.table({("f32", "sm_90"): found}).splitlines()[1:]] == [
        ["f32", "pull", "sm_90", "20", "0", "0", "0"],
        ["f32", "push", "sm_90", "64", "256", "24", "108"],
    ]


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed compiler, where only its version matters."""

    class Distribution:
        name, version = "nvidia-cuda-nvrtc-cu12", "12.4.127"

    monkeypatch.setattr(ptx, "distributions", lambda path: [Distribution])


@pytest.mark.usefixtures("pinned")
def test_what_is_written_compares_equal_until_something_changes(folder: Path) -> None:
    made = {"compute_70/f32": b"one", "compute_80/f32": b"two", "compute_70/old": b"three"}
    ptx.write(made, folder)
    ptx.compare(made, folder)
    assert ptx.stored(folder) == made
    manifest = json.loads((folder / "ptx/manifest.json").read_text())
    assert manifest["sources"].keys() == {"add.cu", "adds.cuh", "build.txt"}

    del made["compute_70/old"]
    made["compute_80/f32"] = b"four"
    with pytest.raises(ptx.Failure, match=r"compute_70/old, compute_80/f32, manifest\.json"):
        ptx.compare(made, folder)
    ptx.write(made, folder)
    ptx.compare(made, folder)

    (folder / "adds.cuh").write_text(HEADER + "\n")
    with pytest.raises(ptx.Failure, match=r"out of date: manifest\.json \(run make gen"):
        ptx.compare(made, folder)


@pytest.mark.usefixtures("pinned")
def test_a_file_with_the_same_text_is_left_as_it_is(folder: Path) -> None:
    path = folder / "ptx/compute_70/f32.ptx.gz"
    path.parent.mkdir(parents=True)
    packed = gzip.compress(b"one", compresslevel=1, mtime=5)
    path.write_bytes(packed)
    ptx.write({"compute_70/f32": b"one"}, folder)
    assert path.read_bytes() == packed


needs_compiler = pytest.mark.skipif(
    not (ptx.CUDA / "complete").is_file(),
    reason="no CUDA compiler here (tools/setup-ptx.sh installs it)",
)


@needs_compiler
def test_ptx_is_the_same_each_time(folder: Path) -> None:
    made = ptx.compiled(ptx.modules(folder), (70, 90), folder)
    assert made.keys() == {"compute_70/f32", "compute_90/f32", "compute_70/i32", "compute_90/i32"}
    files = ptx.sources(folder)
    del files["build.txt"]
    for module in reversed(ptx.modules(folder)):  # anew: nothing is kept of this
        for capability in (70, 90):
            again = ptx.Compiler().ptx(module, capability, files)
            assert made[f"compute_{capability}/{module.name}"] == again
    assert b".target sm_90" in made["compute_90/f32"]
    assert b"add.rn.f32" in made["compute_90/f32"]
    assert b"//" not in made["compute_90/f32"]


@needs_compiler
def test_a_warning_fails(folder: Path) -> None:
    (folder / "add.cu").write_text(KERNEL + "static __device__ void f() { int unused; }\n")
    with pytest.raises(ptx.Failure, match=r"compile f32 for compute_70:\nadd\.cu.*warning"):
        ptx.compiled(ptx.modules(folder), (70,), folder)


@needs_compiler
def test_local_memory_is_seen(folder: Path) -> None:
    (folder / "add.cu").write_text(
        'extern "C" __global__ void add(TYPE *a) {\n'
        "TYPE kept[64]; for (int i = 0; i < 64; i++) kept[i] = a[i];\n"
        "for (int i = 64; i < 99; i++) kept[(int)a[i]] += a[i];\n"
        "a[0] = kept[(int)a[99]]; }\n"
    )
    made = ptx.compiled(ptx.modules(folder)[:1], (80,), folder)
    assert ptx.local_memory(ptx.resources(made)) == [
        "f32 for sm_80: add: 256 bytes of stack, 0 spilled"
    ]


@needs_compiler
@pytest.mark.parametrize("gpu", ["sm_75", "sm_80", "sm_90"])
def test_a_pair_is_one_instruction(tmp_path: Path, gpu: str) -> None:
    """What lines rely on: 16 bytes that are loaded, and stored, at once."""
    (tmp_path / "machine.cuh").write_bytes((ptx.KERNELS / "machine.cuh").read_bytes())
    (tmp_path / "build.txt").write_text("pair pair.cu\n")
    (tmp_path / "pair.cu").write_text(
        '#include "machine.cuh"\n'
        "struct Two { Pair *to, *from; };\n"
        "RL_KERNEL(copy, Two, 32) { store_pair(p.to, load_pair(p.from)); }\n"
    )
    (module,) = ptx.modules(tmp_path)
    code = ptx.sass(module, gpu, "copy", tmp_path)
    memory = [word for word in code.split() if word.startswith(("LDG", "STG", "LD.", "ST."))]
    assert memory == ["LDG.E.128.STRONG.SYS", "STG.E.128.STRONG.SYS"]
