"""Builds the Go half into the wheel: libringlane.so and the ringlane binary.

Everything else about the package stands in pyproject.toml.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent


class BuildGo(build_py):
    """build_py, and then the library and the binary into ringlane/_lib."""

    def run(self):
        super().run()
        if shutil.which("go") is None:
            sys.exit("build ringlane: no go command (install Go 1.26 or newer and try again)")
        target = Path(self.build_lib).resolve() / "ringlane" / "_lib"
        target.mkdir(parents=True, exist_ok=True)
        self.go(target / "ringlane", "0", "./cmd/ringlane")
        self.go(target / "libringlane.so", "1", "-buildmode=c-shared", "./capi")
        # cgo's own header; include/ringlane.h is the one to use.
        (target / "libringlane.h").unlink(missing_ok=True)

    def go(self, output, cgo, *arguments):
        command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(output), *arguments]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "CGO_ENABLED": cgo}, check=True)


class PlatformWheel(bdist_wheel):
    """One wheel for every Python, but only for this kind of machine."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """A distribution with a library in it, though not a Python extension."""

    def has_ext_modules(self):
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildGo, "bdist_wheel": PlatformWheel},
)
