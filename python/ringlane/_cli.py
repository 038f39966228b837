"""The console script ``ringlane``: becomes the binary that the wheel carries."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Replace this process by the bundled ringlane binary, with the same arguments."""
    binary = Path(__file__).resolve().parent / "_lib" / "ringlane"
    if not binary.is_file():
        sys.exit(f"run ringlane: {binary} is missing (install the package again: pip install .)")
    os.execv(binary, ["ringlane", *sys.argv[1:]])  # noqa: S606  no shell is what we want


if __name__ == "__main__":
    main()
