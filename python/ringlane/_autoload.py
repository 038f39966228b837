"""The entry point that torch calls at the end of ``import torch``.

It stands in a module of its own because ``import ringlane.torch`` may itself be what
imports torch: that module is then only half there, and registers itself when it is done.
"""

from __future__ import annotations


def register() -> None:
    """Register the backend "ringlane" with torch.distributed; nothing is loaded yet."""
    import ringlane.torch  # noqa: F401, PLC0415  registers itself
