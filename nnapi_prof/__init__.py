"""Measures PyTorch models on Android NNAPI accelerators, then decides what runs where."""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``convert_model`` of nnapi_prof.api.convert, which imports PyTorch: that takes seconds."""
    if name == "convert_model":
        return importlib.import_module("nnapi_prof.api.convert").convert_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
