"""The ExecuTorch that this works with: its C++ interface is another in each version."""

from __future__ import annotations

import importlib.metadata

from nnapi_prof.errors import UsageError

VERSION = "1.5.1"
"""That of the extra in pyproject.toml."""
TORCH = "2.13"
"""Whose libraries its wheel is linked with."""
INSTALL = "pip install 'nnapi-prof[executorch]'"


def require() -> None:
    """Raises UsageError where ExecuTorch is missing, or it or PyTorch are of another version."""
    try:
        installed = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"ExecuTorch is not installed: {INSTALL}") from None
    if installed.partition("+")[0] != VERSION:
        raise UsageError(
            f"executorch {installed} is installed, and {VERSION} is what the delegate is built"
            f" for: {INSTALL}"
        )
    torch = importlib.metadata.version("torch")
    if not torch.startswith(f"{TORCH}."):
        raise UsageError(
            f"torch {torch} is installed, and executorch {VERSION} is built for {TORCH}: {INSTALL}"
        )
